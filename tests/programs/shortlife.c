/* Sleeps for the given number of microseconds and ends. */
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments) {
  if (count > 1)
    usleep(atoi(arguments[1]));
  return 0;
}

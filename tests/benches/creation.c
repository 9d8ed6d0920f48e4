/* Creates and joins as many threads as its argument says, one after the other. */
#include <pthread.h>
#include <stdlib.h>

static void *nothing(void *argument)
{
    return argument;
}

static int create(void)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL);
}

int main(int count, char **arguments)
{
    for (int left = count > 1 ? atoi(arguments[1]) : 0; left > 0; left--)
        if (create())
            return 1;
    return 0;
}

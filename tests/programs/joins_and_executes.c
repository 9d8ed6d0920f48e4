/* Creates and joins a thread, and then executes its arguments, if there are any. */
#include <pthread.h>
#include <unistd.h>

static void *work(void *argument) { return argument; }

int main(int count, char **words)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 2;
    if (count > 1)
        execv(words[1], words + 1);
    return count > 1 ? 3 : 0;
}

/* Creates and joins as many threads as its argument says, one after another, and prints the
 * nanoseconds for each. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void *nothing(void *argument)
{
    return argument;
}

static int create(void)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL);
}

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(int count, char **arguments)
{
    long all = count > 1 ? atol(arguments[1]) : 1;
    long before = now();
    for (long left = all; left > 0; left--)
        if (create())
            return 1;
    printf("each %ld\n", (now() - before) / all);
    return 0;
}

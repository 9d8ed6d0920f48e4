// Locks and unlocks for a while, and prints the duration of a pair in nanoseconds, by the clock
// and by processor time.
//
//   locks own|shared THREADS PAIRS   a mutex for each thread, or one for all
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST 64

static struct {
    _Alignas(128) pthread_mutex_t mutex;
    volatile long value;
} places[MOST];
static int shared;
static long pairs;

static void *work(void *argument)
{
    long number = shared ? 0 : (long)argument;
    for (long i = 0; i < pairs; i++) {
        pthread_mutex_lock(&places[number].mutex);
        for (int turn = 0; turn < 20; turn++)
            places[number].value++;
        pthread_mutex_unlock(&places[number].mutex);
        for (volatile int turn = 0; turn < 20; turn++)
            ;
    }
    return NULL;
}

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    shared = strcmp(words[1], "shared") == 0;
    int threads = atoi(words[2]);
    pairs = atol(words[3]);
    if (threads < 1 || threads > MOST)
        return 2;
    for (int i = 0; i < MOST; i++)
        pthread_mutex_init(&places[i].mutex, NULL);
    pthread_t made[MOST];
    double start = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
    for (long i = 0; i < threads; i++)
        pthread_create(&made[i], NULL, work, (void *)i);
    for (int i = 0; i < threads; i++)
        pthread_join(made[i], NULL);
    double all = (double)pairs * threads;
    printf("%.1f %.1f\n", (now(CLOCK_MONOTONIC) - start) / all, (now(CLOCK_PROCESS_CPUTIME_ID) - used) / all);
    return 0;
}

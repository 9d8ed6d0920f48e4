/* Locks and unlocks a mutex repeatedly below some KiB of stack, and prints the nanoseconds of one
 * round. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Compiled for this program's instruction set, unlike the C library's function. */
__attribute__((noinline)) int lock_here(void)
{
    int result = pthread_mutex_lock(&mutex);
    __asm__ volatile("" : "+r"(result));
    return result;
}

__attribute__((noinline)) static void rounds(long count)
{
    for (long i = 0; i < count; i++) {
        lock_here();
        pthread_mutex_unlock(&mutex);
    }
}

__attribute__((noinline)) static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

__attribute__((noinline)) void the_end(void) { __asm__ volatile(""); }

int main(int argc, char **argv)
{
    volatile char room[8192];
    long count = argc > 1 ? atol(argv[1]) : 1000;
    memset((char *)room, 1, sizeof room);
    double begin = now();
    rounds(count);
    double time = now() - begin;
    the_end();
    printf("ns %.1f\n", time / count);
    return room[7] - 1;
}

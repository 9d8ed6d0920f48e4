/* Mutexes that count how often they were taken, their longest hold, and the total wait for them,
 * so that a recording can be compared. Prints "taken NAME COUNT LONGEST WAITED" at the end, in
 * microseconds. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static inline long now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

#define MUTEX(name) \
    static pthread_mutex_t name = PTHREAD_MUTEX_INITIALIZER; \
    static long name##_taken, name##_since, name##_longest, name##_waited
#define TAKE(name) \
    do { \
        long before = now_us(); \
        pthread_mutex_lock(&name); \
        name##_since = now_us(); \
        name##_waited += name##_since - before; \
        name##_taken++; \
    } while (0)
#define GIVE(name) \
    do { \
        long held = now_us() - name##_since; \
        name##_longest = held > name##_longest ? held : name##_longest; \
        pthread_mutex_unlock(&name); \
    } while (0)
#define TELL(name) printf("taken " #name " %ld %ld %ld\n", name##_taken, name##_longest, name##_waited)

static inline pthread_t start(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, argument) != 0)
        exit(2);
    return thread;
}

static inline void run(void *(*function)(void *), void *argument)
{
    pthread_join(start(function, argument), NULL);
}

static inline void sleep_us(long us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

/* Threads that happen not to meet, without any synchronization that would prevent it. */
static atomic_int turn;

static inline void await_turn(int number)
{
    while (atomic_load(&turn) != number)
        sleep_us(100);
}

static inline void end_turn(void)
{
    atomic_fetch_add(&turn, 1);
}

/* One thread waits at an object of each kind until another one ends the wait. Each wait is
 * printed, so that a recording can be compared: "ended KIND ADDRESS WAITER ENDER LEAST MOST".
 * LEAST is the time in nanoseconds for which the kernel showed the thread waiting, MOST the time
 * by the thread's own clock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline int self(void) { return (int)syscall(SYS_gettid); }

static inline int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static inline void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Waits until the kernel shows it waiting at a futex. */
static inline void until_it_waits(volatile int *tid)
{
    char path[64], call[32];
    do {
        sleep_ms(1);
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", *tid);
        int file = open(path, O_RDONLY);
        ssize_t size = file < 0 ? 0 : read(file, call, sizeof call - 1);
        if (file >= 0)
            close(file);
        call[size > 0 ? size : 0] = 0;
    } while (atoi(call) != SYS_futex);
}

static inline void tell(const char *kind, const volatile void *object, int waiter, int ender, int64_t least, int64_t most)
{
    printf("ended %s %lu %d %d %lld %lld\n", kind, (unsigned long)object, waiter, ender, (long long)least,
           (long long)most);
}

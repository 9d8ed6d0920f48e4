/* Threads that run all the time, half of it, rarely, and that wait for each other. At the end they
 * print their own processor times: "turns TID ON_CPU RUNNABLE ALIVE" in nanoseconds. */
#include "told.h"
#include <poll.h>
#include <sys/syscall.h>

#define LIFE_US 2000000

MUTEX(table);

static void spin(long us)
{
    for (long until = now_us() + us; now_us() < until;)
        ;
}

static void tell(long long since)
{
    long long alive = 1000LL * (now_us() - since), on_cpu = 0, runnable = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (!file || fscanf(file, "%lld %lld", &on_cpu, &runnable) != 2)
        exit(3);
    fclose(file);
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    on_cpu = time.tv_sec * 1000000000LL + time.tv_nsec;
    printf("turns %ld %lld %lld %lld\n", syscall(SYS_gettid), on_cpu, runnable, alive);
}

static void *burn(void *argument)
{
    long since = now_us();
    spin(LIFE_US);
    tell(since);
    return argument;
}

static void *half(void *argument)
{
    long since = now_us();
    while (now_us() < since + LIFE_US) {
        spin(60000);
        sleep_us(60000);
    }
    tell(since);
    return argument;
}

static void *away(void *argument)
{
    long since = now_us();
    poll(NULL, 0, LIFE_US / 1000);
    tell(since);
    return argument;
}

static void *share(void *argument)
{
    long since = now_us();
    while (now_us() < since + LIFE_US) {
        TAKE(table);
        spin(20000);
        GIVE(table);
        sleep_us(1000);
    }
    tell(since);
    return argument;
}

int main(void)
{
    void *(*functions[])(void *) = {burn, half, away, share, share};
    pthread_t threads[5];
    for (int i = 0; i < 5; i++)
        threads[i] = start(functions[i], NULL);
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    TELL(table);
    return 0;
}

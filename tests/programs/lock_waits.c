// One thread holds locks of several kinds for some time, again and again, and three others wait for
// them. Prints each lock, the function that waits, and in nanoseconds how long threads waited there
// in total, by a clock. With an argument, it starts another process for that.
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 8, WAITERS = 3, HOLD_US = 20000 };

static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t doors[4];
static pthread_mutex_t *heap;
static pthread_rwlock_t map = PTHREAD_RWLOCK_INITIALIZER;
static FILE *stream;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER, opens = PTHREAD_COND_INITIALIZER;
static int arrivals, openings;
static long opened_ns;
static atomic_long door_ns, doors_ns, heap_ns, map_ns, stream_ns, gate_ns;
static pthread_barrier_t begin;
static struct timespec never;

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void *hold(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&door);
        pthread_mutex_lock(&doors[2]);
        pthread_mutex_lock(heap);
        pthread_rwlock_wrlock(&map);
        flockfile(stream);
        pthread_barrier_wait(&begin);
        usleep(HOLD_US);
        pthread_mutex_unlock(&door);
        usleep(HOLD_US);
        pthread_mutex_unlock(&doors[2]);
        usleep(HOLD_US);
        pthread_mutex_unlock(heap);
        usleep(HOLD_US);
        pthread_rwlock_unlock(&map);
        usleep(HOLD_US);
        funlockfile(stream);
        pthread_mutex_lock(&gate);
        while (arrivals < WAITERS * (round + 1))
            pthread_cond_wait(&arrived, &gate);
        openings = round + 1;
        opened_ns = now();
        pthread_cond_broadcast(&opens);
        usleep(HOLD_US);
        pthread_mutex_unlock(&gate);
        pthread_barrier_wait(&begin);
    }
    return argument;
}

static void timed(pthread_mutex_t *mutex, atomic_long *sum)
{
    long from = now();
    pthread_mutex_lock(mutex);
    *sum += now() - from;
    pthread_mutex_unlock(mutex);
}

static void *wait_for_all(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&begin);
        timed(&door, &door_ns);
        timed(&doors[2], &doors_ns);
        long from = now();
        pthread_mutex_timedlock(heap, &never);
        heap_ns += now() - from;
        pthread_mutex_unlock(heap);
        from = now();
        pthread_rwlock_rdlock(&map);
        map_ns += now() - from;
        pthread_rwlock_unlock(&map);
        from = now();
        fwrite("round\n", 1, 6, stream);
        stream_ns += now() - from;
        pthread_mutex_lock(&gate);
        arrivals++;
        pthread_cond_signal(&arrived);
        while (openings <= round)
            pthread_cond_wait(&opens, &gate);
        gate_ns += now() - opened_ns;
        pthread_mutex_unlock(&gate);
        pthread_barrier_wait(&begin);
    }
    return argument;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        char *own[] = { argv[0], NULL };
        pid_t child;
        return posix_spawn(&child, argv[0], NULL, NULL, own, NULL) || waitpid(child, NULL, 0) < 0;
    }
    clock_gettime(CLOCK_REALTIME, &never);
    never.tv_sec += 1000000;
    heap = malloc(sizeof *heap);
    stream = fopen("/dev/null", "w");
    pthread_mutex_init(heap, NULL);
    pthread_mutex_init(&doors[2], NULL);
    pthread_barrier_init(&begin, NULL, WAITERS + 1);
    pthread_t threads[WAITERS + 1];
    pthread_create(&threads[WAITERS], NULL, hold, NULL);
    for (int i = 0; i < WAITERS; i++)
        pthread_create(&threads[i], NULL, wait_for_all, NULL);
    for (int i = 0; i <= WAITERS; i++)
        pthread_join(threads[i], NULL);
    printf("door pthread_mutex_lock %ld\n", door_ns);
    printf("doors[2] pthread_mutex_lock %ld\n", doors_ns);
    printf("- pthread_mutex_timedlock %ld\n", heap_ns);
    printf("map pthread_rwlock_rdlock %ld\n", map_ns);
    printf("- fwrite %ld\n", stream_ns);
    printf("gate pthread_cond_wait %ld\n", gate_ns);
}

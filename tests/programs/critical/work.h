/* Work of a known length, and a bounded queue. A program that is called with "repaired" has its
 * bottleneck removed. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline int64_t now_us(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

/* Uses a processor for this time, however long it has to wait for one. */
static inline void compute(int64_t us)
{
    int64_t end = now_us(CLOCK_THREAD_CPUTIME_ID) + us;
    while (now_us(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
}

/* Waits for this time, as for a device. */
static inline void device(int64_t us)
{
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

static inline int is_repaired(int count, char **words)
{
    return count > 1 && !strcmp(words[1], "repaired");
}

static inline pthread_t start(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, argument))
        abort();
    return thread;
}

#define QUEUE_SIZE 4

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    int items[QUEUE_SIZE];
    unsigned put, taken;
};

#define QUEUE                                                                                    \
    {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0, 0}

static inline void put(struct queue *queue, int item)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->put - queue->taken == QUEUE_SIZE)
        pthread_cond_wait(&queue->emptied, &queue->lock);
    queue->items[queue->put++ % QUEUE_SIZE] = item;
    pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

static inline int take(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->put == queue->taken)
        pthread_cond_wait(&queue->filled, &queue->lock);
    int item = queue->items[queue->taken++ % QUEUE_SIZE];
    pthread_cond_signal(&queue->emptied);
    pthread_mutex_unlock(&queue->lock);
    return item;
}

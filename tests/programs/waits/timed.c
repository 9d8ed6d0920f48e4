/* Two mutexes in opposite orders, but the threads wait for an hour at most. */
#include "say.h"
#include <time.h>

static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER, right = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static int tids[2];

static void *take(void *argument)
{
    long own = (long)argument;
    pthread_mutex_t *first = own ? &right : &left, *second = own ? &left : &right;
    tids[own] = self();
    pthread_mutex_lock(first);
    pthread_barrier_wait(&both);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3600;
    say_wait("mutex", second, tids[1 - own]);
    pthread_mutex_timedlock(second, &until);
    return argument;
}

int main(void)
{
    prepare(&left);
    prepare(&right);
    pthread_barrier_init(&both, NULL, 3);
    start(take, (void *)0);
    start(take, (void *)1);
    pthread_barrier_wait(&both);
    dprintf(1, "finding deadlock inferred %d %d\nwaits 2\nready\n", tids[0], tids[1]);
    for (;;)
        pause();
}

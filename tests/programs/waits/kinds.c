/* One thread holds an object of each kind, and others wait there. There is no finding, because the
 * holder reads from standard input. */
#include "say.h"
#include <errno.h>
#include <semaphore.h>
#include <time.h>

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, recursive, checking, robust, inheriting, orphan;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER, being_read = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static sem_t slots;
static pthread_barrier_t gate;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int holder;

static void make(pthread_mutex_t *mutex, int type, int robustness, int protocol)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, type);
    pthread_mutexattr_setrobust(&attr, robustness);
    pthread_mutexattr_setprotocol(&attr, protocol);
    if (pthread_mutex_init(mutex, &attr) != 0)
        exit(2);
}

static void *lock(void *mutex)
{
    say_wait("mutex", mutex, holder);
    pthread_mutex_lock(mutex);
    return NULL;
}

static void *lock_for_an_hour(void *mutex)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3600;
    say_wait("mutex", mutex, holder);
    pthread_mutex_timedlock(mutex, &until);
    return NULL;
}

static void *read_written(void *argument)
{
    say_wait("rwlock", &written, holder);
    pthread_rwlock_rdlock(&written);
    return argument;
}

static void *write_written(void *argument)
{
    say_wait("rwlock", &written, holder);
    pthread_rwlock_wrlock(&written);
    return argument;
}

static void *write_being_read(void *argument)
{
    say_wait("rwlock", &being_read, 0);
    pthread_rwlock_wrlock(&being_read);
    return argument;
}

static void *wait_changed(void *argument)
{
    pthread_mutex_lock(&guard);
    say_wait("cond", &changed, 0);
    dprintf(1, "mutex %d %#lx\n", self(), (unsigned long)(uintptr_t)&guard);
    pthread_cond_wait(&changed, &guard);
    return argument;
}

static void *wait_changed_for_an_hour(void *argument)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3600;
    pthread_mutex_lock(&guard);
    say_wait("cond", &changed, 0);
    pthread_cond_timedwait(&changed, &guard, &until);
    return argument;
}

static void *wait_slot(void *argument)
{
    say_wait("sem", &slots, 0);
    sem_wait(&slots);
    return argument;
}

static void *arrive(void *argument)
{
    say_wait("barrier", &gate, 0);
    pthread_barrier_wait(&gate);
    return argument;
}

static void initialize(void)
{
    for (;;)
        pause();
}

static void *begin(void *argument)
{
    pthread_once(&once, initialize);
    return argument;
}

static void *wait_once(void *argument)
{
    say_wait("once", &once, 0);
    pthread_once(&once, initialize);
    return argument;
}

static void *join(void *thread)
{
    dprintf(1, "wait %d join 0 %d\n", self(), holder);
    pthread_join(*(pthread_t *)thread, NULL);
    return NULL;
}

static void *die(void *argument)
{
    pthread_mutex_lock(&orphan);
    return argument;
}

int main(int argc, char **argv)
{
    (void)argv;
    pthread_t main_thread = pthread_self();
    holder = self();
    make(&recursive, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    make(&checking, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    make(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
    make(&orphan, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
    /* QEMU's user mode has no priority inheritance and no robust mutexes. An argument avoids
     * both. */
    make(&inheriting, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, argc > 1 ? PTHREAD_PRIO_NONE : PTHREAD_PRIO_INHERIT);
    sem_init(&slots, 0, 0);
    pthread_barrier_init(&gate, NULL, 3);
    /* Take over the mutex of a dead owner. */
    if (argc <= 1)
        pthread_join(start(die, NULL), NULL);
    int died = pthread_mutex_lock(&orphan);
    if (died != (argc > 1 ? 0 : EOWNERDEAD) || (died != 0 && pthread_mutex_consistent(&orphan) != 0))
        return 3;
    pthread_mutex_lock(&plain);
    pthread_mutex_lock(&recursive);
    pthread_mutex_lock(&recursive);
    pthread_mutex_lock(&checking);
    pthread_mutex_lock(&robust);
    pthread_mutex_lock(&inheriting);
    pthread_rwlock_wrlock(&written);
    pthread_rwlock_rdlock(&being_read);
    pthread_mutex_t *mutexes[] = { &plain, &recursive, &checking, &robust, &inheriting, &orphan };
    for (unsigned n = 0; n < sizeof mutexes / sizeof *mutexes; n++)
        start(lock, mutexes[n]);
    start(lock, &plain);
    start(lock_for_an_hour, &plain);
    start(read_written, NULL);
    start(write_written, NULL);
    start(write_being_read, NULL);
    start(wait_changed, NULL);
    start(wait_changed_for_an_hour, NULL);
    start(wait_slot, NULL);
    start(arrive, NULL);
    start(arrive, NULL);
    start(begin, NULL);
    while (*(volatile int *)&once == 0)
        usleep(1000);
    start(wait_once, NULL);
    start(join, &main_thread);
    dprintf(1, "waits 18\nready\n");
#ifdef BYSTANDER
    for (;;)
        pause();
#endif
    char end;
    while (syscall(SYS_read, 0, &end, 1) == 1)
        ;
    _exit(0);
}

/* A wait of each kind, and the thread that ended it. */
#include "ended.h"
#include <pthread.h>
#include <semaphore.h>

/* From linux/futex.h, which musl's compiler does not find. */
enum { FUTEX_WAIT, FUTEX_WAKE };

static pthread_mutex_t plain, recursive, checking, robust, inheriting, guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER, being_read = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static sem_t slots;
static pthread_barrier_t gate;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int word;
static pthread_t joined;

static volatile int waiter, ender, is_changed, may_end;
static int64_t from, to;

static pthread_t start(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, argument) != 0)
        exit(2);
    return thread;
}

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

static void lock(void *mutex) { pthread_mutex_lock(mutex); }
static void unlock(void *mutex) { pthread_mutex_unlock(mutex); }
static void lock_and_unlock(void *mutex)
{
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
}

static void read_lock(void *lock) { pthread_rwlock_rdlock(lock); }
static void write_lock(void *lock) { pthread_rwlock_wrlock(lock); }
static void rwunlock(void *lock) { pthread_rwlock_unlock(lock); }
static void read_and_unlock(void *lock)
{
    pthread_rwlock_rdlock(lock);
    pthread_rwlock_unlock(lock);
}
static void write_and_unlock(void *lock)
{
    pthread_rwlock_wrlock(lock);
    pthread_rwlock_unlock(lock);
}

static void wait_changed(void *condition)
{
    pthread_mutex_lock(&guard);
    while (!is_changed)
        pthread_cond_wait(condition, &guard);
    pthread_mutex_unlock(&guard);
}
static void change(void *condition)
{
    pthread_mutex_lock(&guard);
    is_changed = 1;
    pthread_mutex_unlock(&guard);
    pthread_cond_signal(condition);
}
static void wait_slot(void *slots) { sem_wait(slots); }
static void post(void *slots) { sem_post(slots); }
static void arrive(void *gate) { pthread_barrier_wait(gate); }

static void initialize(void)
{
    ender = self();
    while (!may_end)
        sleep_ms(1);
}
static void *initialize_it(void *once)
{
    pthread_once(once, initialize);
    return NULL;
}
static void begin_once(void *once)
{
    joined = start(initialize_it, once);
    while (!ender)
        sleep_ms(1);
}
static void wait_once(void *once) { pthread_once(once, initialize); }
static void let_end(void *object)
{
    may_end = 1;
    if (object)
        pthread_join(joined, NULL);
}

static void *live(void *nothing)
{
    ender = self();
    while (!may_end)
        sleep_ms(1);
    return nothing;
}
static void begin_life(void *nothing)
{
    joined = start(live, nothing);
    while (!ender)
        sleep_ms(1);
}
static void join(void *nothing) { pthread_join(joined, nothing); }

static void wait_word(void *word)
{
    while (*(volatile int *)word == 0)
        syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL);
}
static void set_word(void *word)
{
    *(volatile int *)word = 1;
    syscall(SYS_futex, word, FUTEX_WAKE, 1);
}

struct way {
    const char *kind;
    void *object;
    void (*before)(void *), (*wait)(void *), (*end)(void *);
};

static void *wait_there(void *argument)
{
    struct way *way = argument;
    waiter = self();
    from = now_ns();
    way->wait(way->object);
    to = now_ns();
    return NULL;
}

int main(void)
{
    make(&plain, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    make(&recursive, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    make(&checking, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    make(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
    make(&inheriting, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT);
    sem_init(&slots, 0, 0);
    pthread_barrier_init(&gate, NULL, 2);
    struct way ways[] = {
        { "mutex", &plain, lock, lock_and_unlock, unlock },
        { "mutex", &recursive, lock, lock_and_unlock, unlock },
        { "mutex", &checking, lock, lock_and_unlock, unlock },
        { "mutex", &robust, lock, lock_and_unlock, unlock },
        { "mutex", &inheriting, lock, lock_and_unlock, unlock },
        { "rwlock", &written, write_lock, read_and_unlock, rwunlock },
        { "rwlock", &being_read, read_lock, write_and_unlock, rwunlock },
        { "cond", &changed, NULL, wait_changed, change },
        { "sem", &slots, NULL, wait_slot, post },
        { "barrier", &gate, NULL, arrive, arrive },
        { "once", &once, begin_once, wait_once, let_end },
        /* The handle is not the address of an object. */
        { "join", NULL, begin_life, join, let_end },
        { "futex", &word, NULL, wait_word, set_word },
    };
    for (unsigned n = 0; n < sizeof ways / sizeof *ways; n++) {
        struct way *way = &ways[n];
        waiter = ender = may_end = 0;
        if (way->before)
            way->before(way->object);
        pthread_t thread = start(wait_there, way);
        until_it_waits(&waiter);
        int64_t since = now_ns();
        sleep_ms(20);
        int64_t least = now_ns() - since;
        way->end(way->object);
        pthread_join(thread, NULL);
        tell(way->kind, way->object, waiter, ender ? ender : self(), least, to - from);
    }
    return 0;
}

// Every operation of every POSIX lock, in threads that log their calls: one line for each call,
// with the thread, the function, the object and the result.
//
//   locks THREADS ROUNDS   each thread uses its own objects and, ROUNDS times, the shared ones
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 64

struct log {
    long tid;
    size_t length, room;
    char *text;
};

static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t together;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t slots;
static long turn, counter;
static int threads, rounds;
static struct log logs[MOST + 1];

static __attribute__((noinline)) long note(struct log *log, const char *function, const void *object, long result)
{
    if (log->length + 128 > log->room) {
        log->room = log->room * 2 + 4096;
        log->text = realloc(log->text, log->room);
    }
    log->length += sprintf(log->text + log->length, "%ld %s %#lx %ld\n", log->tid, function,
                           (unsigned long)(uintptr_t)object, result);
    return result;
}

#define CALL(function, object, ...) note(log, #function, object, function(object, ##__VA_ARGS__))

static void initialize(void)
{
    counter = 0;
}

static void private_objects(struct log *log)
{
    pthread_mutex_t own;
    pthread_mutexattr_t checking;
    pthread_mutexattr_init(&checking);
    pthread_mutexattr_settype(&checking, PTHREAD_MUTEX_ERRORCHECK);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);

    CALL(pthread_mutex_init, &own, &checking);
    CALL(pthread_mutex_lock, &own);
    CALL(pthread_mutex_lock, &own);
    CALL(pthread_mutex_trylock, &own);
    CALL(pthread_mutex_timedlock, &own, &now);
    CALL(pthread_mutex_unlock, &own);
    CALL(pthread_mutex_destroy, &own);

    pthread_rwlock_t rwlock;
    CALL(pthread_rwlock_init, &rwlock, NULL);
    CALL(pthread_rwlock_rdlock, &rwlock);
    CALL(pthread_rwlock_tryrdlock, &rwlock);
    CALL(pthread_rwlock_trywrlock, &rwlock);
    CALL(pthread_rwlock_timedwrlock, &rwlock, &now);
    CALL(pthread_rwlock_unlock, &rwlock);
    CALL(pthread_rwlock_unlock, &rwlock);
    CALL(pthread_rwlock_wrlock, &rwlock);
    CALL(pthread_rwlock_unlock, &rwlock);
    CALL(pthread_rwlock_destroy, &rwlock);

    sem_t sem;
    CALL(sem_init, &sem, 0, 1);
    CALL(sem_wait, &sem);
    CALL(sem_trywait, &sem);
    CALL(sem_timedwait, &sem, &now);
    CALL(sem_post, &sem);
    CALL(sem_destroy, &sem);
}

static void *work(void *argument)
{
    long number = (long)(intptr_t)argument;
    struct log *log = &logs[number + 1];
    log->tid = syscall(SYS_gettid);
    private_objects(log);
    CALL(pthread_once, &once, initialize);
    CALL(pthread_barrier_wait, &together);
    for (int i = 0; i < rounds; i++) {
        CALL(pthread_mutex_lock, &shared);
        counter++;
        CALL(pthread_mutex_unlock, &shared);
        CALL(sem_wait, &slots);
        CALL(pthread_rwlock_rdlock, &table);
        CALL(pthread_rwlock_unlock, &table);
        CALL(sem_post, &slots);
    }
    // One thread after another.
    CALL(pthread_mutex_lock, &shared);
    while (turn != number)
        CALL(pthread_cond_wait, &turned, &shared);
    turn++;
    CALL(pthread_cond_signal, &turned);
    CALL(pthread_cond_broadcast, &turned);
    CALL(pthread_mutex_unlock, &shared);
    return NULL;
}

int main(int count, char **words)
{
    threads = count > 1 ? atoi(words[1]) : 4;
    rounds = count > 2 ? atoi(words[2]) : 20;
    if (threads < 1 || threads > MOST)
        return 2;
    struct log *log = &logs[0];
    log->tid = syscall(SYS_gettid);
    CALL(pthread_barrier_init, &together, NULL, threads);
    CALL(sem_init, &slots, 0, 2);
    pthread_t made[MOST];
    for (int i = 0; i < threads; i++)
        pthread_create(&made[i], NULL, work, (void *)(intptr_t)i);
    for (int i = 0; i < threads; i++)
        note(log, "pthread_join", (void *)made[i], pthread_join(made[i], NULL));
    for (int i = 0; i <= threads; i++)
        fwrite(logs[i].text, 1, logs[i].length, stdout);
    return 0;
}

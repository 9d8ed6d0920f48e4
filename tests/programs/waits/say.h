/* Functions with which these programs print their waits in advance, so that tests can compare
 * them. One line for each: "wait TID KIND ADDRESS HOLDER"; "mutex TID ADDRESS" for a wait at a
 * condition variable; "finding KIND proved|inferred TID..."; "waits N" if lines of waits may come
 * after "ready"; "pid N" for a child to inspect. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int self(void) { return (int)syscall(SYS_gettid); }

static inline void say_wait(const char *kind, const volatile void *object, int holder)
{
    if (holder)
        dprintf(1, "wait %d %s %#lx %d\n", self(), kind, (unsigned long)(uintptr_t)object, holder);
    else
        dprintf(1, "wait %d %s %#lx\n", self(), kind, (unsigned long)(uintptr_t)object);
}

/* Makes a mutex inherit priorities with -DINHERITS, and robust with -DROBUST: musl records the
 * holder of a robust mutex, but not of an ordinary one. QEMU's user mode has no robust mutexes, and
 * musl reports that. There it becomes an error-checking mutex, whose holder is also recorded. */
static inline void prepare(pthread_mutex_t *mutex)
{
    (void)mutex;
#ifdef ROBUST
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    if (pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) != 0)
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    if (pthread_mutex_init(mutex, &attr) != 0)
        exit(2);
#endif
#ifdef INHERITS
    pthread_mutexattr_t inherits;
    pthread_mutexattr_init(&inherits);
    pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT);
    if (pthread_mutex_init(mutex, &inherits) != 0)
        exit(2);
#endif
}

static inline pthread_t start(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, argument) != 0)
        exit(2);
    return thread;
}

#ifdef BYSTANDER
#include <signal.h>

/* With -DBYSTANDER one more thread stops the program for its debugger when it reads a byte. A
 * thread that QEMU's user mode stops leaves its system call, and its wait becomes unknown. */
static void *stand_by(void *argument)
{
    char byte;
    while (read(0, &byte, 1) == 1)
        raise(SIGINT);
    return argument;
}

__attribute__((constructor)) static void bystander(void) { start(stand_by, NULL); }
#endif

/* A mutex that two processes share: the child holds it, the parent waits. There is no finding. With
 * -DENDS the child ends and still holds it. With -DNAMESPACES the processes are two children in PID
 * namespaces of their own, in which each has the same id, 1. */
#include "say.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>

struct common { pthread_mutex_t lock; volatile int owner; };

static struct common *common;

static void holds(void)
{
    pthread_mutex_lock(&common->lock);
    common->owner = self();
#ifndef ENDS
    for (;;)
        pause();
#endif
}

static void waits(void)
{
    while (common->owner == 0)
        usleep(1000);
#ifdef ENDS
    wait(NULL);
    dprintf(1, "finding abandoned-lock inferred %d\n", self());
#endif
#ifndef NAMESPACES
    say_wait("mutex", &common->lock, common->owner);
    dprintf(1, "ready\n");
#endif
    pthread_mutex_lock(&common->lock);
}

/* Starts a process; with -DNAMESPACES in a namespace of its own. */
static int process(void (*acts)(void))
{
    int child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
#ifdef NAMESPACES
        if (unshare(CLONE_NEWPID) != 0)
            _exit(2);
        child = fork();
        if (child > 0) {
            dprintf(1, acts == waits ? "pid %d\nready\n" : "", child);
            waitpid(child, NULL, 0);
            _exit(0);
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
        acts();
        _exit(0);
    }
    return child;
}

int main(void)
{
    common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&common->lock, &attr);
    process(holds);
#ifdef NAMESPACES
    waitpid(process(waits), NULL, 0);
#else
    waits();
#endif
    return 0;
}

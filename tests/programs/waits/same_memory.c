/* A process runs in the memory of another one. The child will post the semaphore for which its
 * parent waits. With -DVFORK, the child waits for a mutex that a thread of its parent holds. Tests
 * inspect the waiting process. */
#include "say.h"
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

#ifdef VFORK
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static int owner;

static void *hold(void *argument)
{
    owner = self();
    pthread_mutex_lock(&lock);
    pthread_barrier_wait(&both);
    for (;;)
        pause();
    return argument;
}

int main(void)
{
    pthread_barrier_init(&both, NULL, 2);
    start(hold, NULL);
    pthread_barrier_wait(&both);
    if (vfork() == 0) {
        dprintf(1, "pid %d\n", self());
        say_wait("mutex", &lock, owner);
        dprintf(1, "ready\n");
        pthread_mutex_lock(&lock);
        _exit(0);
    }
    return 0;
}
#else
static sem_t turn;
static char stack[1 << 16] __attribute__((aligned(16)));

static int post(void *argument)
{
    (void)argument;
    sleep(3600);
    sem_post(&turn);
    _exit(0);
}

int main(void)
{
    sem_init(&turn, 0, 0);
    if (clone(post, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL) == -1)
        return 2;
    say_wait("semaphore", &turn, 0);
    dprintf(1, "ready\n");
    sem_wait(&turn);
    return 0;
}
#endif

/* A process forks while another of its threads holds a mutex, so the child's copy is held forever.
 * Tests inspect the child. */
#include "say.h"
#include <sys/wait.h>

static pthread_mutex_t cache = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static int owner;

static void *hold(void *argument)
{
    owner = self();
    pthread_mutex_lock(&cache);
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
    if (fork() == 0) {
        dprintf(1, "pid %d\n", getpid());
        say_wait("mutex", &cache, owner);
        dprintf(1, "finding abandoned-lock inferred %d\nready\n", self());
        pthread_mutex_lock(&cache);
    }
    wait(NULL);
    return 0;
}

/* A signal handler allocates memory while the interrupted thread also does. It waits forever for a
 * lock of malloc, which does not record its holder. */
#include "say.h"
#include <signal.h>

static volatile int inside, tid;

static void *allocate(void *argument)
{
    tid = self();
    for (;;)
        free(malloc(100000));
    return argument;
}

static void handle(int signal)
{
    (void)signal;
    inside = 1;
    free(malloc(100000));
    inside = 0;
}

int main(void)
{
    signal(SIGUSR1, handle);
    pthread_t thread = start(allocate, NULL);
    while (tid == 0)
        usleep(1000);
    for (int still = 0; still < 300;) {
        if (!inside)
            pthread_kill(thread, SIGUSR1);
        usleep(1000);
        still = inside ? still + 1 : 0;
    }
    dprintf(1, "wait %d futex 0\nready\n", tid);
    for (;;)
        pause();
}

/* Four threads work in phases. One is slower than the others, which wait for it at the barrier.
 * There is no finding. */
#include "say.h"

static pthread_barrier_t phase;

static void *work(void *argument)
{
    for (;;) {
        if (argument)
            usleep(2000);
        pthread_barrier_wait(&phase);
    }
    return argument;
}

int main(void)
{
    pthread_barrier_init(&phase, NULL, 4);
    for (int n = 0; n < 3; n++)
        start(work, NULL);
    dprintf(1, "ready\n");
    work(&phase);
}

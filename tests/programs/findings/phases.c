/* Four threads work in phases. One is slower than the others, which wait for it at the barrier.
 * There is no finding. */
#include "told.h"

#define THREADS 4
#define PHASES 30

static pthread_barrier_t phase;

static void *work(void *argument)
{
    for (int round = 0; round < PHASES; round++) {
        if (argument)
            sleep_us(3000);
        pthread_barrier_wait(&phase);
    }
    return NULL;
}

int main(void)
{
    pthread_barrier_init(&phase, NULL, THREADS);
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++)
        threads[n] = start(work, n ? NULL : &phase);
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    pthread_barrier_destroy(&phase);
    return 0;
}

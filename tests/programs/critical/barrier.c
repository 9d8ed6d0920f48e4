/* Four threads meet after each step, and one of them needs much longer for its part.
 * Repaired: it needs half the time. */
#include "work.h"

#define THREADS 4
#define STEPS 100

static pthread_barrier_t step_end;
static int large_us = 4000;

static void *do_small_part(void *argument)
{
    for (int step = 0; step < STEPS; step++) {
        compute(300);
        pthread_barrier_wait(&step_end);
    }
    return argument;
}

static void *do_large_part(void *argument)
{
    for (int step = 0; step < STEPS; step++) {
        compute(large_us);
        pthread_barrier_wait(&step_end);
    }
    return argument;
}

int main(int count, char **words)
{
    if (is_repaired(count, words))
        large_us /= 2;
    pthread_barrier_init(&step_end, NULL, THREADS);
    pthread_t threads[THREADS];
    threads[0] = start(do_large_part, NULL);
    for (int n = 1; n < THREADS; n++)
        threads[n] = start(do_small_part, NULL);
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    return 0;
}

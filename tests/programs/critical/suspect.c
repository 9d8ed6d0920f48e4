/* Four threads wait for one lock most of the time, but the run takes as long as one thread that
 * computes without it. Repaired: that thread needs half the time. */
#include "work.h"

#define THREADS 4
#define ROUNDS 40

static pthread_mutex_t statistics = PTHREAD_MUTEX_INITIALIZER;
static int solve_ms = 500;

static void *count_events(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&statistics);
        device(1000);
        pthread_mutex_unlock(&statistics);
        device(100);
    }
    return argument;
}

static void *solve(void *argument)
{
    for (int step = 0; step < 100; step++)
        compute(solve_ms * 10);
    return argument;
}

int main(int count, char **words)
{
    if (is_repaired(count, words))
        solve_ms /= 2;
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++)
        threads[n] = start(count_events, NULL);
    pthread_join(start(solve, NULL), NULL);
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    return 0;
}

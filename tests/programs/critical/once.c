/* The main thread prepares tables, and then four threads work for a short time.
 * Repaired: the preparation takes half the time. */
#include "work.h"

#define THREADS 4

static void *answer(void *argument)
{
    for (int item = 0; item < 20; item++) {
        compute(500);
        device(1000);
    }
    return argument;
}

int main(int count, char **words)
{
    compute(is_repaired(count, words) ? 150000 : 300000);
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++)
        threads[n] = start(answer, NULL);
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    return 0;
}

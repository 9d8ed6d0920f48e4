/* A pool whose work is divided badly: one of four threads has most of it.
 * Repaired: that thread has half as much, and the others have the rest. */
#include "work.h"

#define THREADS 4

static void *do_share(void *argument)
{
    for (int item = *(int *)argument; item > 0; item--) {
        compute(200);
        device(1800);
    }
    return NULL;
}

int main(int count, char **words)
{
    int shares[2][THREADS] = {{200, 20, 20, 20}, {100, 54, 53, 53}};
    int *mine = shares[is_repaired(count, words)];
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++)
        threads[n] = start(do_share, &mine[n]);
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    return 0;
}

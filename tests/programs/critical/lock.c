/* Four threads access a device under one lock, and compute a little without it.
 * Repaired: each thread has a lock of its own. */
#include "work.h"

#define THREADS 4
#define ROUNDS 60

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t own[THREADS];
static int repaired;

static void *update(void *argument)
{
    pthread_mutex_t *lock = repaired ? argument : &table;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(lock);
        device(1500);
        pthread_mutex_unlock(lock);
        compute(300);
    }
    return NULL;
}

int main(int count, char **words)
{
    repaired = is_repaired(count, words);
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++) {
        pthread_mutex_init(&own[n], NULL);
        threads[n] = start(update, &own[n]);
    }
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    return 0;
}

/* Six threads return to one lock before the others have finished with it, so all of them queue.
 * Repaired: six locks. */
#include "work.h"

#define THREADS 6
#define ROUNDS 100

static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t own[THREADS];
static int repaired;

static void *pass(void *argument)
{
    pthread_mutex_t *lock = repaired ? argument : &door;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(lock);
        device(500);
        pthread_mutex_unlock(lock);
        device(200);
    }
    return NULL;
}

int main(int count, char **words)
{
    repaired = is_repaired(count, words);
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++) {
        pthread_mutex_init(&own[n], NULL);
        threads[n] = start(pass, &own[n]);
    }
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    return 0;
}

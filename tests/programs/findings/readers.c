/* Readers and a writer of one read-write lock, and a mutex that is always taken after it. There is
 * no finding. */
#include "told.h"

#define ROUNDS 50

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
MUTEX(cache);

static void *look_up(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_rwlock_rdlock(&table);
        TAKE(cache);
        GIVE(cache);
        pthread_rwlock_unlock(&table);
    }
    return argument;
}

static void *update(void *argument)
{
    for (int round = 0; round < ROUNDS / 10; round++) {
        pthread_rwlock_wrlock(&table);
        TAKE(cache);
        GIVE(cache);
        pthread_rwlock_unlock(&table);
        sleep_us(200);
    }
    return argument;
}

int main(void)
{
    pthread_t threads[4];
    for (int n = 0; n < 4; n++)
        threads[n] = start(n ? look_up : update, NULL);
    for (int n = 0; n < 4; n++)
        pthread_join(threads[n], NULL);
    TELL(cache);
    return 0;
}

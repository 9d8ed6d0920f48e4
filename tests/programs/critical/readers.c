/* Four readers wait for a writer that holds a read-write lock while it accesses a device.
 * Repaired: the writer has a lock of its own. */
#include "work.h"

#define READERS 4
#define ROUNDS 100

static pthread_rwlock_t map = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t copy = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t *written = &map;
static int is_over;

static void *refresh(void *argument)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        pthread_rwlock_wrlock(written);
        device(2500);
        pthread_rwlock_unlock(written);
        device(1000);
    }
    return argument;
}

static void *find(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_rwlock_rdlock(&map);
        device(100);
        pthread_rwlock_unlock(&map);
        device(1000);
    }
    return argument;
}

int main(int count, char **words)
{
    if (is_repaired(count, words))
        written = &copy;
    pthread_t readers[READERS], writer = start(refresh, NULL);
    for (int n = 0; n < READERS; n++)
        readers[n] = start(find, NULL);
    for (int n = 0; n < READERS; n++)
        pthread_join(readers[n], NULL);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    pthread_join(writer, NULL);
    return 0;
}

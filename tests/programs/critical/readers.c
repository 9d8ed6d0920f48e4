/* Four readers wait for a writer that holds a read-write lock while it accesses a device.
 * Repaired: the writer has a lock of its own. */
#include "work.h"

#define READERS 4
#define ROUNDS 250
#define WRITES 60

static pthread_rwlock_t map = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t copy = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t *written = &map;

static void *refresh(void *argument)
{
    for (int round = 0; round < WRITES; round++) {
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
    pthread_join(writer, NULL);
    return 0;
}

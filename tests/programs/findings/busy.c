/* Threads that mostly lock and unlock, far more often than a budget allows to record, for two
 * seconds or for the given number of milliseconds. No hold is long and no order is wrong, so any
 * such finding comes from missing events. */
#include "told.h"

#define THREADS 4

MUTEX(first);
MUTEX(second);
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static volatile int over;
static volatile long value;

static void *work(void *argument)
{
    while (!over) {
        TAKE(first);
        value++;
        TAKE(second);
        value++;
        GIVE(second);
        GIVE(first);
        pthread_rwlock_rdlock(&table);
        value++;
        pthread_rwlock_unlock(&table);
        TAKE(second);
        GIVE(second);
    }
    return argument;
}

int main(int count, char **words)
{
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++)
        threads[n] = start(work, NULL);
    sleep_us(1000 * (count > 1 ? atol(words[1]) : 2000));
    over = 1;
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    TELL(first);
    TELL(second);
    return 0;
}

/* Eight threads take two mutexes and a read-write lock in the same order, as fast as they can.
 * There is no finding. */
#include "say.h"

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t third = PTHREAD_RWLOCK_INITIALIZER;
static volatile unsigned long count;

static void *work(void *argument)
{
    for (;;) {
        pthread_mutex_lock(&first);
        pthread_mutex_lock(&second);
        pthread_rwlock_wrlock(&third);
        count++;
        pthread_rwlock_unlock(&third);
        pthread_mutex_unlock(&second);
        pthread_mutex_unlock(&first);
        pthread_mutex_lock(&second);
        pthread_rwlock_rdlock(&third);
        pthread_rwlock_unlock(&third);
        pthread_mutex_unlock(&second);
    }
    return argument;
}

int main(void)
{
    for (int n = 0; n < 8; n++)
        start(work, NULL);
    dprintf(1, "ready\n");
    for (;;)
        pause();
}

/* A condition whose waiters can miss a signal, because its state is changed without their mutex.
 * With an argument it is changed under the mutex and signalled afterwards, which is correct. */
#include <stdatomic.h>

#include "told.h"

MUTEX(lock);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static atomic_int state;

static void *wait(void *argument)
{
    TAKE(lock);
    while (!state)
        pthread_cond_wait(&changed, &lock);
    GIVE(lock);
    return argument;
}

static void *change(void *under_mutex)
{
    sleep_us(50000);
    if (under_mutex)
        TAKE(lock);
    state = 1;
    if (under_mutex)
        GIVE(lock);
    pthread_cond_signal(&changed);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t one = start(wait, NULL), two = start(change, argc > 1 ? argv[1] : NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    TELL(lock);
    return 0;
}

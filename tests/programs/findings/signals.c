/* A condition that is signalled by somebody who does not hold the mutex it is waited for with. */
#include "told.h"

MUTEX(lock);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int state;

static void *wait(void *argument)
{
    TAKE(lock);
    while (!state)
        pthread_cond_wait(&changed, &lock);
    GIVE(lock);
    return argument;
}

static void *change(void *argument)
{
    sleep_us(50000);
    TAKE(lock);
    state = 1;
    GIVE(lock);
    pthread_cond_signal(&changed);
    return argument;
}

int main(void)
{
    pthread_t one = start(wait, NULL), two = start(change, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    TELL(lock);
    return 0;
}

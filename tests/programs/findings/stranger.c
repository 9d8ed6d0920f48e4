/* A thread unlocks a mutex that another thread holds. */
#include "told.h"

MUTEX(record);
static pthread_barrier_t both;

static void *own(void *argument)
{
    TAKE(record);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    return argument;
}

static void *meddle(void *argument)
{
    pthread_barrier_wait(&both);
    GIVE(record);
    pthread_barrier_wait(&both);
    return argument;
}

int main(void)
{
    pthread_barrier_init(&both, NULL, 2);
    pthread_t one = start(own, NULL), two = start(meddle, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    TELL(record);
    return 0;
}

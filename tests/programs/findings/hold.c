/* One thread holds a mutex for a second while another waits for it. */
#include "told.h"

MUTEX(settings);
static pthread_barrier_t both;

static void *save(void *argument)
{
    TAKE(settings);
    pthread_barrier_wait(&both);
    sleep_us(1000000);
    GIVE(settings);
    return argument;
}

static void *look(void *argument)
{
    pthread_barrier_wait(&both);
    TAKE(settings);
    GIVE(settings);
    return argument;
}

int main(void)
{
    pthread_barrier_init(&both, NULL, 2);
    pthread_t one = start(save, NULL), two = start(look, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    TELL(settings);
    return 0;
}

/* Consumers wait for work and a producer sometimes makes some: idle, without a finding. */
#include "say.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static unsigned long made, used;

static void *consume(void *argument)
{
    pthread_mutex_lock(&lock);
    for (;;) {
        while (made == used)
            pthread_cond_wait(&filled, &lock);
        used++;
    }
    return argument;
}

int main(void)
{
    for (int n = 0; n < 4; n++)
        start(consume, NULL);
    dprintf(1, "ready\n");
    for (;;) {
        pthread_mutex_lock(&lock);
        made++;
        pthread_mutex_unlock(&lock);
        pthread_cond_signal(&filled);
        usleep(100);
    }
}

/* Consumers wait for work, and a producer sometimes makes some. They are idle by design; there is
 * no finding. */
#include "told.h"

#define CONSUMERS 4
#define JOBS 200

MUTEX(lock);
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static long made, used;
static int over;

static void *consume(void *argument)
{
    TAKE(lock);
    for (;;) {
        while (made == used && !over)
            pthread_cond_wait(&filled, &lock);
        if (made == used)
            break;
        used++;
    }
    GIVE(lock);
    return argument;
}

int main(void)
{
    pthread_t threads[CONSUMERS];
    for (int n = 0; n < CONSUMERS; n++)
        threads[n] = start(consume, NULL);
    for (int job = 0; job < JOBS; job++) {
        sleep_us(1000);
        TAKE(lock);
        made++;
        pthread_cond_signal(&filled);
        GIVE(lock);
    }
    TAKE(lock);
    over = 1;
    pthread_cond_broadcast(&filled);
    GIVE(lock);
    for (int n = 0; n < CONSUMERS; n++)
        pthread_join(threads[n], NULL);
    TELL(lock);
    return used == JOBS ? 0 : 1;
}

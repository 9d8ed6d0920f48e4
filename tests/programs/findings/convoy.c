/* Six threads that return to one mutex before the others have finished with it, so that all of
 * them queue all the time. */
#include "told.h"

#define THREADS 6
#define ROUNDS 40

MUTEX(door);

static void *pass(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        TAKE(door);
        sleep_us(1000);
        GIVE(door);
        sleep_us(100);
    }
    return argument;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++)
        threads[n] = start(pass, NULL);
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    TELL(door);
    return 0;
}

/* Three threads that are never joined, one that is detached, and one that is joined, which is
 * right. */
#include "told.h"

static pthread_barrier_t all;

static void *forgotten(void *argument)
{
    pthread_barrier_wait(&all);
    return argument;
}

static void *detached(void *argument)
{
    pthread_barrier_wait(&all);
    return argument;
}

static void *joined(void *argument) { return argument; }

int main(void)
{
    pthread_barrier_init(&all, NULL, 5);
    for (int n = 0; n < 3; n++)
        start(forgotten, NULL);
    pthread_detach(start(detached, NULL));
    pthread_barrier_wait(&all);
    sleep_us(400000);
    run(joined, NULL); // the others have ended by themselves, not with the program
    return 0;
}

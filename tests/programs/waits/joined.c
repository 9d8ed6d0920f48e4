/* A thread signals a condition when it has joined a thread that computes for long. There is no
 * finding. */
#include "say.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static int done;

static void *compute(void *argument)
{
    for (volatile long long n = 0; n < 1LL << 50; n++)
        ;
    return argument;
}

static void *coordinate(void *argument)
{
    pthread_join(start(compute, NULL), NULL);
    pthread_mutex_lock(&lock);
    done = 1;
    pthread_cond_signal(&finished);
    pthread_mutex_unlock(&lock);
    return argument;
}

int main(void)
{
    start(coordinate, NULL);
    usleep(100000);
    dprintf(1, "ready\n");
    pthread_mutex_lock(&lock);
    while (!done)
        pthread_cond_wait(&finished, &lock);
    pthread_mutex_unlock(&lock);
    return 0;
}

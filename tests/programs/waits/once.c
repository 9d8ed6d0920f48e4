/* A thread waits for a function that another one runs once and that computes for long. There is no
 * finding. */
#include "say.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void compute(void)
{
    for (volatile long long n = 0; n < 1LL << 50; n++)
        ;
}

static void *prepare_once(void *argument)
{
    pthread_once(&once, compute);
    return argument;
}

int main(void)
{
    start(prepare_once, NULL);
    usleep(100000);
    dprintf(1, "ready\n");
    pthread_once(&once, compute);
    return 0;
}

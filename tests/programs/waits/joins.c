/* Three threads join each other in a cycle. (glibc detects cycles of two.) */
#include "say.h"

static pthread_t threads[3];
static int tids[3];
static pthread_barrier_t all;

static void *finish(void *argument)
{
    long own = (long)argument;
    tids[own] = self();
    pthread_barrier_wait(&all);
    dprintf(1, "wait %d join 0 %d\n", tids[own], tids[(own + 1) % 3]);
    pthread_join(threads[(own + 1) % 3], NULL);
    return NULL;
}

int main(void)
{
    pthread_barrier_init(&all, NULL, 4);
    for (long n = 0; n < 3; n++)
        threads[n] = start(finish, (void *)n);
    pthread_barrier_wait(&all);
    dprintf(1, "finding deadlock proved %d %d %d\nwaits 3\nready\n", tids[0], tids[1], tids[2]);
    for (;;)
        pause();
}

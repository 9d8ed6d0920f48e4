/* Two threads take two mutexes in opposite orders. Main waits for one of them, but is not part of
 * the cycle. */
#include "say.h"

static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static int tids[2];

static void *transfer(void *argument)
{
    tids[0] = self();
    pthread_mutex_lock(&accounts);
    pthread_barrier_wait(&both);
    say_wait("mutex", &journal, tids[1]);
    pthread_mutex_lock(&journal);
    return argument;
}

static void *audit(void *argument)
{
    tids[1] = self();
    pthread_mutex_lock(&journal);
    pthread_barrier_wait(&both);
    say_wait("mutex", &accounts, tids[0]);
    pthread_mutex_lock(&accounts);
    return argument;
}

int main(void)
{
    prepare(&accounts);
    prepare(&journal);
    pthread_barrier_init(&both, NULL, 3);
    pthread_t first = start(transfer, NULL);
    start(audit, NULL);
    pthread_barrier_wait(&both);
    dprintf(1, "finding deadlock proved %d %d\n", tids[0], tids[1]);
    dprintf(1, "wait %d join 0 %d\n", self(), tids[0]);
    dprintf(1, "waits 3\nready\n");
    pthread_join(first, NULL);
    return 0;
}

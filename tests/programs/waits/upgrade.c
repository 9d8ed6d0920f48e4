/* Two threads read under one lock, and both want to write: each waits for the other to stop
 * reading. No other thread runs. */
#include "say.h"

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t both;

static void *improve(void *argument)
{
    pthread_rwlock_rdlock(&table);
    pthread_barrier_wait(&both);
    say_wait("rwlock", &table, 0);
    pthread_rwlock_wrlock(&table);
    return argument;
}

int main(void)
{
    pthread_barrier_init(&both, NULL, 2);
    pthread_t first = start(improve, NULL);
    start(improve, NULL);
    dprintf(1, "finding deadlock proved\nwaits 2\nready\n");
    pthread_join(first, NULL);
    return 0;
}

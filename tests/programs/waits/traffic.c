/* Like abba.c, after many threads took one lock as often as they could, so that a recording is
 * full of other events. With an argument, nothing hangs. Eight threads that only took that lock
 * have ended. */
#include "say.h"

enum { THREADS = 8, ROUNDS = 40000 };

static pthread_mutex_t hot = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static volatile long total;
static int tids[2];

static void *count(void *argument)
{
    for (int n = 0; n < ROUNDS; n++) {
        pthread_mutex_lock(&hot);
        for (volatile int i = 0; i < 200; i++)
            ;
        total++;
        pthread_mutex_unlock(&hot);
    }
    return argument;
}

static void *transfer(void *argument)
{
    tids[0] = self();
    count(NULL);
    pthread_mutex_lock(&accounts);
    pthread_barrier_wait(&both);
    say_wait("mutex", &journal, tids[1]);
    pthread_mutex_lock(&journal);
    return argument;
}

static void *audit(void *argument)
{
    tids[1] = self();
    count(NULL);
    pthread_mutex_lock(&journal);
    pthread_barrier_wait(&both);
    say_wait("mutex", &accounts, tids[0]);
    pthread_mutex_lock(&accounts);
    return argument;
}

int main(int argc, char **argv)
{
    (void)argv;
    pthread_t counting[THREADS];
    pthread_barrier_init(&both, NULL, 3);
    pthread_t first = 0;
    if (argc == 1) {
        first = start(transfer, NULL);
        start(audit, NULL);
    }
    for (int n = 0; n < THREADS; n++)
        counting[n] = start(count, NULL);
    for (int n = 0; n < THREADS; n++)
        pthread_join(counting[n], NULL);
    if (argc > 1)
        return 0;
    pthread_barrier_wait(&both);
    dprintf(1, "finding deadlock proved %d %d\n", tids[0], tids[1]);
    dprintf(1, "wait %d join 0 %d\n", self(), tids[0]);
    dprintf(1, "waits 3\nready\n");
    pthread_join(first, NULL);
    return 0;
}

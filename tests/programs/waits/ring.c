/* N threads (3, or the number in the argument), each of which holds one mutex and waits for the
 * next one. */
#include "say.h"

enum { MOST = 4000 };
static pthread_mutex_t forks[MOST];
static int tids[MOST];
static long count = 3;
static pthread_barrier_t all, told;

static void *dine(void *argument)
{
    long left = (long)argument, right = (left + 1) % count;
    tids[left] = self();
    pthread_mutex_lock(&forks[left]);
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&told);
    say_wait("mutex", &forks[right], tids[right]);
    pthread_mutex_lock(&forks[right]);
    return argument;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        count = atol(argv[1]);
    if (count < 1 || count > MOST)
        return 2;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 * 1024);
    pthread_barrier_init(&all, NULL, (unsigned)count + 1);
    pthread_barrier_init(&told, NULL, (unsigned)count + 1);
    for (long n = 0; n < count; n++) {
        pthread_mutex_init(&forks[n], NULL);
        prepare(&forks[n]);
        pthread_t thread;
        if (pthread_create(&thread, &small, dine, (void *)n) != 0)
            return 2;
    }
    pthread_barrier_wait(&all);
    // The kernel refuses one thread its mutex, so the finding is inferred.
#ifdef INHERITS
    dprintf(1, "finding deadlock inferred");
#else
    dprintf(1, "finding deadlock proved");
#endif
    for (long n = 0; n < count; n++)
        dprintf(1, " %d", tids[n]);
    dprintf(1, "\nwaits %ld\nready\n", count);
    pthread_barrier_wait(&told);
    for (;;)
        pause();
}

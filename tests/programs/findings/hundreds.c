/* hundreds THREADS PAIRS: THREADS threads take a thousand mutexes, PAIRS times each, as fast as
 * they can. They rarely meet. Prints "taken TIMES by THREADS threads" at the end. */
#include "told.h"

#define LOCKS 1000

static pthread_mutex_t locks[LOCKS];
static long taken[LOCKS];
static long pairs;

static void *work(void *seed)
{
    uint64_t random = (uintptr_t)seed * 2654435761u + 1;
    for (long n = 0; n < pairs; n++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        int at = (random >> 33) % LOCKS;
        pthread_mutex_lock(&locks[at]);
        taken[at]++;
        pthread_mutex_unlock(&locks[at]);
    }
    return NULL;
}

int main(int count, char **words)
{
    long threads = count > 1 ? atol(words[1]) : 300, all = 0;
    pairs = count > 2 ? atol(words[2]) : 60;
    pthread_t *ids = calloc(threads, sizeof *ids);
    for (int n = 0; n < LOCKS; n++)
        pthread_mutex_init(&locks[n], NULL);
    for (long n = 0; n < threads; n++)
        ids[n] = start(work, (void *)n);
    for (long n = 0; n < threads; n++)
        pthread_join(ids[n], NULL);
    for (int n = 0; n < LOCKS; n++)
        all += taken[n];
    printf("taken %ld by %ld threads\n", all, threads);
    return 0;
}

/* Four threads parse and store under a lock. Each variant has one planted change:
 * -DLOCKED parses under the lock, -DPOOL adds a pool of threads, -DSLOW parses 20 % longer and
 * -DTWICE twice as long. */
#include "work.h"

#define THREADS 4
#define ROUNDS 60

#if defined(TWICE)
#define PARSE_US 4000
#elif defined(SLOW)
#define PARSE_US 2400
#else
#define PARSE_US 2000
#endif

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static volatile int stored;

static void parse(void)
{
    compute(PARSE_US);
}

static void store(void)
{
    compute(100);
    stored++;
}

static void *serve(void *argument)
{
    (void)argument;
    for (int round = 0; round < ROUNDS; round++) {
#ifdef LOCKED
        pthread_mutex_lock(&table);
        parse();
#else
        parse();
        pthread_mutex_lock(&table);
#endif
        store();
        pthread_mutex_unlock(&table);
    }
    return NULL;
}

#ifdef POOL
static void *audit(void *argument)
{
    (void)argument;
    for (int round = 0; round < ROUNDS; round++)
        compute(1200);
    return NULL;
}
#endif

int main(void)
{
    pthread_t threads[2 * THREADS];
    int count = 0;
#ifdef POOL
    while (count < THREADS)
        threads[count++] = start(audit, NULL);
#endif
    for (int n = 0; n < THREADS; n++)
        threads[count++] = start(serve, NULL);
    while (count > 0)
        pthread_join(threads[--count], NULL);
    return 0;
}

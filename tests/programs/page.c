// Threads for the HTML report: a pool, a mutex that threads queue at, a barrier, and a thread that
// creates threads.
// Names of threads and of a source file try to be HTML.
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#define WORKERS 3
#define QUEUERS 4
#define JOBS 12

static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t together;
static int jobs, closed;

static void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static pthread_t start(void *(*function)(void *), const char *name)
{
    pthread_t thread;
    pthread_create(&thread, NULL, function, NULL);
    pthread_setname_np(thread, name);
    return thread;
}

static void *work(void *argument)
{
    pthread_mutex_lock(&queue);
    while (jobs > 0 || !closed) {
        if (jobs == 0) {
            pthread_cond_wait(&filled, &queue);
            continue;
        }
        jobs--;
        pthread_mutex_unlock(&queue);
        sleep_ms(1);
        pthread_mutex_lock(&queue);
    }
    pthread_mutex_unlock(&queue);
    return argument;
}

#line 1 "</script><img src=x onerror=window.hit=1>.c"
static void *pass(void *argument)
{
    pthread_barrier_wait(&together);
    for (int round = 0; round < 10; round++) {
        pthread_mutex_lock(&door);
        sleep_ms(1);
        pthread_mutex_unlock(&door);
    }
    return argument;
}

static void *open_doors(void *argument)
{
    pthread_t threads[QUEUERS];
    for (int n = 0; n < QUEUERS; n++)
        threads[n] = start(pass, "<img src=x>");
    for (int n = 0; n < QUEUERS; n++)
        pthread_join(threads[n], NULL);
    return argument;
}

int main(void)
{
    pthread_t threads[WORKERS];
    pthread_barrier_init(&together, NULL, QUEUERS);
    for (int n = 0; n < WORKERS; n++)
        threads[n] = start(work, "</script><b>");
    pthread_t opener = start(open_doors, "opener");
    for (int n = 0; n < JOBS; n++) {
        sleep_ms(3);
        pthread_mutex_lock(&queue);
        jobs++;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&queue);
    }
    pthread_mutex_lock(&queue);
    pthread_mutex_lock(&door);
    closed = 1;
    pthread_mutex_unlock(&door);
    pthread_cond_broadcast(&filled);
    pthread_mutex_unlock(&queue);
    pthread_join(opener, NULL);
    for (int n = 0; n < WORKERS; n++)
        pthread_join(threads[n], NULL);
    return 0;
}

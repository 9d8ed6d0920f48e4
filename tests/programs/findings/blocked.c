/* A thread waits for something else while it holds a lock that five others need: a pipe with
 * `read` or `poll`, time with `sleep`, a condition variable with `cond`. */
#include <poll.h>
#include <string.h>

#include "told.h"

MUTEX(cache_lock);
static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static int pipe_ends[2], is_ready;

static void *refill(void *argument)
{
    const char *how = argument;
    char byte;
    TAKE(cache_lock);
    if (!strcmp(how, "read") && read(pipe_ends[0], &byte, 1) != 1)
        exit(3);
    if (!strcmp(how, "poll") && poll(&(struct pollfd){pipe_ends[0], POLLIN, 0}, 1, -1) != 1)
        exit(3);
    if (!strcmp(how, "sleep"))
        nanosleep(&(struct timespec){2, 100000000}, NULL);
    if (!strcmp(how, "cond")) {
        pthread_mutex_lock(&other);
        while (!is_ready)
            pthread_cond_wait(&ready, &other);
        pthread_mutex_unlock(&other);
    }
    GIVE(cache_lock);
    return NULL;
}

static void *lookup(void *argument)
{
    TAKE(cache_lock);
    GIVE(cache_lock);
    return argument;
}

int main(int argc, char **argv)
{
    pthread_t one, five[5];
    if (argc < 2 || pipe(pipe_ends) != 0)
        return 3;
    one = start(refill, argv[1]);
    sleep_us(100000);
    for (int i = 0; i < 5; i++)
        five[i] = start(lookup, NULL);
    sleep_us(2000000);
    if (write(pipe_ends[1], "x", 1) != 1)
        return 3;
    pthread_mutex_lock(&other);
    is_ready = 1;
    pthread_cond_signal(&ready);
    pthread_mutex_unlock(&other);
    pthread_join(one, NULL);
    for (int i = 0; i < 5; i++)
        pthread_join(five[i], NULL);
    TELL(cache_lock);
    return 0;
}

/* A shop that takes orders: the program that `unspool demo` records.
 *
 * It is small, but its threads come about the way they do in large programs: two pools that
 * share one worker function, a thread that creates threads, threads with and without names,
 * one detached, and many that live a moment only.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int orders_waiting, orders_done, closing;

static void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static pthread_t start(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, argument) != 0) {
        fputs("orders: cannot create a thread\n", stderr);
        exit(1);
    }
    return thread;
}

/* One worker function, shared by both pools. */
static void *worker(void *name)
{
    pthread_setname_np(pthread_self(), name);
    pthread_mutex_lock(&lock);
    while (orders_waiting > 0 || !closing) {
        if (orders_waiting == 0) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        orders_waiting--;
        pthread_mutex_unlock(&lock);
        pause_ms(5);
        pthread_mutex_lock(&lock);
        orders_done++;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void start_pool(pthread_t *pool, size_t size, char *name)
{
    for (size_t i = 0; i < size; i++)
        pool[i] = start(worker, name);
}

static void open_billing(pthread_t *pool, size_t size)
{
    start_pool(pool, size, "billing");
}

static void open_shipping(pthread_t *pool, size_t size)
{
    start_pool(pool, size, "shipping");
}

/* One thread for each connection: it takes an order and ends. */
static void *connection(void *unused)
{
    (void)unused;
    pause_ms(2);
    pthread_mutex_lock(&lock);
    orders_waiting++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void serve(int connections)
{
    pthread_t threads[4];
    for (int done = 0; done < connections; done += COUNT(threads)) {
        for (size_t i = 0; i < COUNT(threads); i++)
            threads[i] = start(connection, NULL);
        for (size_t i = 0; i < COUNT(threads); i++)
            pthread_join(threads[i], NULL);
        pause_ms(25);
    }
}

static void *listener(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "listener");
    serve(40);
    return NULL;
}

/* Nobody waits for the log: it is detached, and still there when main returns. */
static void *write_log(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "log");
    for (;;)
        pause_ms(20);
    return NULL;
}

static void start_log(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_create(&thread, &attributes, write_log, NULL);
    pthread_attr_destroy(&attributes);
}

int main(void)
{
    pthread_t billing[3], shipping[2];
    start_log();
    open_billing(billing, COUNT(billing));
    open_shipping(shipping, COUNT(shipping));
    pthread_join(start(listener, NULL), NULL);

    pthread_mutex_lock(&lock);
    closing = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < COUNT(billing); i++)
        pthread_join(billing[i], NULL);
    for (size_t i = 0; i < COUNT(shipping); i++)
        pthread_join(shipping[i], NULL);
    return orders_done == 40 ? 0 : 1;
}

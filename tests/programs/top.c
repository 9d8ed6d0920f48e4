/* A pool that waits for a mutex, its holder, and a thread that always runs. One thread has a name
 * that is an escape sequence for a terminal. A line on standard input ends them. The exit code is
 * 7. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t settings = PTHREAD_MUTEX_INITIALIZER;
static sem_t taken, saved;
static atomic_int ends;

static void *save(void *argument)
{
    pthread_mutex_lock(&settings);
    sem_post(&taken);
    sem_wait(&saved);
    pthread_mutex_unlock(&settings);
    return argument;
}

static void *serve(void *argument)
{
    pthread_mutex_lock(&settings);
    pthread_mutex_unlock(&settings);
    return argument;
}

static void *compute(void *argument)
{
    while (!ends)
        ;
    return argument;
}

static pthread_t start(void *(*function)(void *), const char *name)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, NULL) != 0)
        exit(2);
    pthread_setname_np(thread, name);
    return thread;
}

int main(void)
{
    pthread_t threads[5];
    char line[8];

    sem_init(&taken, 0, 0);
    sem_init(&saved, 0, 0);
    threads[0] = start(save, "save\033[31m");
    sem_wait(&taken);
    threads[1] = start(serve, "pool-1");
    threads[2] = start(serve, "pool-2");
    threads[3] = start(serve, "pool-3");
    threads[4] = start(compute, "compute");
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        line[0] = 0;
    sem_post(&saved);
    ends = 1;
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 7;
}

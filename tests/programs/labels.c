// Two threads of one function with names of their own, created in two places. A process that the
// program starts still lives when the program ends.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

static sem_t named;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *pool(void *name)
{
    pthread_setname_np(pthread_self(), name);
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&lock);
        usleep(1000);
        pthread_mutex_unlock(&lock);
    }
    sem_post(&named);
    for (;;)
        pause();
}

int main(void)
{
    if (fork() == 0) {
        // The recorder does not wait for the ends of the pipes.
        for (int file = 0; file < 3; file++)
            close(file);
        sleep(5);
        _exit(0);
    }
    pthread_t thread;
    pthread_create(&thread, NULL, pool, "reader");
    pthread_create(&thread, NULL, pool, "writer");
    sem_wait(&named);
    sem_wait(&named);
    _exit(0);
}

/* Twelve threads that are never joined: four created detached, four detached by their creator,
 * four that detach themselves. All have left their function before main ends. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

static sem_t done;

static void *quiet(void *argument)
{
    (void)argument;
    sem_post(&done);
    return NULL;
}

static void *detach_itself(void *argument)
{
    (void)argument;
    pthread_detach(pthread_self());
    sem_post(&done);
    return NULL;
}

static void create(const pthread_attr_t *attributes, void *(*function)(void *), int detach)
{
    pthread_t thread;
    if (pthread_create(&thread, attributes, function, NULL) != 0)
        exit(2);
    if (detach)
        pthread_detach(thread);
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sem_init(&done, 0, 0);

    for (int n = 0; n < 4; n++)
        create(&attributes, quiet, 0);
    for (int n = 0; n < 4; n++)
        create(NULL, quiet, 1);
    for (int n = 0; n < 4; n++)
        create(NULL, detach_itself, 0);

    for (int n = 0; n < 12; n++)
        sem_wait(&done);
    puts("detached: 12 threads");
    return 0;
}

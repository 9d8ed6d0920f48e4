// A producer and three consumers with a queue of eight places. They wait for each other by design,
// and no thread blocks another.
//
//   handover ITEMS
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CONSUMERS 3
#define PLACES 8

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static pthread_cond_t emptied = PTHREAD_COND_INITIALIZER;
static int queue[PLACES], length, over;
static long sum;

static void *consume(void *argument)
{
    (void)argument;
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (length == 0 && !over)
            pthread_cond_wait(&filled, &mutex);
        if (length == 0) {
            pthread_mutex_unlock(&mutex);
            return NULL;
        }
        sum += queue[--length];
        pthread_cond_signal(&emptied);
        pthread_mutex_unlock(&mutex);
    }
}

int main(int count, char **words)
{
    int items = count > 1 ? atoi(words[1]) : 200;
    pthread_t consumers[CONSUMERS];
    for (int i = 0; i < CONSUMERS; i++)
        pthread_create(&consumers[i], NULL, consume, NULL);
    for (int i = 1; i <= items; i++) {
        struct timespec pause = {0, 200000};
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&mutex);
        while (length == PLACES)
            pthread_cond_wait(&emptied, &mutex);
        queue[length++] = i;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    over = 1;
    pthread_cond_broadcast(&filled);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < CONSUMERS; i++)
        pthread_join(consumers[i], NULL);
    printf("%ld\n", sum);
    return 0;
}

/* Five philosophers at a table where four may sit at once. They wait for each other's forks, and
 * always eat. */
#include "say.h"
#include <semaphore.h>

static pthread_mutex_t forks[5];
static sem_t seats;
static volatile unsigned long meals;

static void *dine(void *argument)
{
    long left = (long)argument, right = (left + 1) % 5;
    for (;;) {
        sem_wait(&seats);
        pthread_mutex_lock(&forks[left]);
        pthread_mutex_lock(&forks[right]);
        meals++;
        pthread_mutex_unlock(&forks[right]);
        pthread_mutex_unlock(&forks[left]);
        sem_post(&seats);
    }
    return argument;
}

int main(void)
{
    sem_init(&seats, 0, 4);
    for (long n = 0; n < 5; n++)
        pthread_mutex_init(&forks[n], NULL);
    for (long n = 0; n < 5; n++)
        start(dine, (void *)n);
    dprintf(1, "ready\n");
    for (;;)
        pause();
}

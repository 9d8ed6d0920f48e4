/* Five philosophers who each take the left fork first, so all can block at once. Here they happen
 * to eat one after another. With "polite" the last one takes the other fork first, and with
 * "seated" only four sit at the table; then there is no finding. */
#include "told.h"
#include <semaphore.h>
#include <string.h>

#define SEATS 5

static pthread_mutex_t forks[SEATS];
static long taken[SEATS];
static int polite, seated;
static sem_t seats;

static void take(long fork)
{
    pthread_mutex_lock(&forks[fork]);
    taken[fork]++;
}

static void *dine(void *argument)
{
    long seat = (long)argument, first = seat, second = (first + 1) % SEATS;
    if (polite && second < first) {
        second = first;
        first = 0;
    }
    for (int round = 0; round < 2; round++) {
        await_turn((int)(SEATS * round + seat));
        if (seated)
            sem_wait(&seats);
        take(first);
        take(second);
        pthread_mutex_unlock(&forks[second]);
        pthread_mutex_unlock(&forks[first]);
        if (seated)
            sem_post(&seats);
        end_turn();
    }
    return NULL;
}

int main(int count, char **words)
{
    polite = count > 1 && strcmp(words[1], "polite") == 0;
    seated = count > 1 && strcmp(words[1], "seated") == 0;
    sem_init(&seats, 0, SEATS - 1);
    for (long n = 0; n < SEATS; n++)
        pthread_mutex_init(&forks[n], NULL);
    pthread_t threads[SEATS];
    for (long n = 0; n < SEATS; n++)
        threads[n] = start(dine, (void *)n);
    for (long n = 0; n < SEATS; n++)
        pthread_join(threads[n], NULL);
    for (int n = 0; n < SEATS; n++)
        printf("taken forks[%d] %ld 0 0\n", n, taken[n]);
    return 0;
}

/* Threads exit while others are created: four creators at once, each with up to five live threads
 * out of thirty. At any moment some thread starts and another one ends. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { CREATORS = 4, THREADS = 30, WINDOW = 5 };

static int finished;

static void *short_work(void *argument)
{
    unsigned turns = (unsigned)(size_t)argument * 37 % 200;
    for (volatile unsigned n = 0; n < turns; n++)
        ;
    __atomic_add_fetch(&finished, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void *creator(void *argument)
{
    (void)argument;
    pthread_t live[WINDOW];
    for (int n = 0; n < THREADS + WINDOW; n++) {
        if (n >= WINDOW)
            pthread_join(live[n % WINDOW], NULL);
        if (n < THREADS && pthread_create(&live[n % WINDOW], NULL, short_work, (void *)(size_t)n) != 0)
            exit(2);
    }
    return NULL;
}

int main(void)
{
    pthread_t creators[CREATORS];
    for (int n = 0; n < CREATORS; n++)
        if (pthread_create(&creators[n], NULL, creator, NULL) != 0)
            return 2;
    for (int n = 0; n < CREATORS; n++)
        pthread_join(creators[n], NULL);
    printf("churn: %d threads\n", finished);
    return finished == CREATORS * THREADS ? 0 : 1;
}

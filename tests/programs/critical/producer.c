/* Three consumers wait for a producer that is too slow.
 * Repaired: it needs half the time for an item. */
#include <semaphore.h>

#include "work.h"

#define ITEMS 200
#define CONSUMERS 3

static sem_t items;
static int produce_us = 2000;

static void *produce(void *argument)
{
    for (int item = 0; item < ITEMS; item++) {
        compute(produce_us);
        sem_post(&items);
    }
    for (int n = 0; n < CONSUMERS; n++)
        sem_post(&items);
    return argument;
}

static int made = ITEMS;

static void *consume(void *argument)
{
    for (;;) {
        sem_wait(&items);
        if (__atomic_fetch_sub(&made, 1, __ATOMIC_RELAXED) <= 0)
            return argument;
        compute(400);
    }
}

int main(int count, char **words)
{
    if (is_repaired(count, words))
        produce_us /= 2;
    sem_init(&items, 0, 0);
    pthread_t consumers[CONSUMERS];
    for (int n = 0; n < CONSUMERS; n++)
        consumers[n] = start(consume, NULL);
    pthread_join(start(produce, NULL), NULL);
    for (int n = 0; n < CONSUMERS; n++)
        pthread_join(consumers[n], NULL);
    return 0;
}

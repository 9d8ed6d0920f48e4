/* Threads wait for `first`, whose holder waits for `second`, whose holder waits for `third`, which
 * is held for long. Repaired: the long holder has a lock of its own. */
#include "work.h"

#define ROUNDS 100
#define SAVES 12

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t second = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t third = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *saved = &third;

static void *save(void *argument)
{
    for (int round = 0; round < SAVES; round++) {
        pthread_mutex_lock(saved);
        device(15000);
        pthread_mutex_unlock(saved);
        device(1000);
    }
    return argument;
}

static void *list(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&second);
        pthread_mutex_lock(&third);
        device(500);
        pthread_mutex_unlock(&third);
        pthread_mutex_unlock(&second);
        device(1500);
    }
    return argument;
}

static void *look_up(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&first);
        pthread_mutex_lock(&second);
        device(300);
        pthread_mutex_unlock(&second);
        pthread_mutex_unlock(&first);
        device(700);
    }
    return argument;
}

static void *ask(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&first);
        device(300);
        pthread_mutex_unlock(&first);
        device(700);
    }
    return argument;
}

int main(int count, char **words)
{
    if (is_repaired(count, words))
        saved = &other;
    pthread_t threads[] = {start(save, NULL), start(list, NULL), start(look_up, NULL),
                           start(ask, NULL)};
    for (int n = 0; n < 4; n++)
        pthread_join(threads[n], NULL);
    return 0;
}

// Locks taken in many orders: a circle of five with a finding, a circle that a gate excludes, a
// long chain, and two locks of one name. Nothing hangs, because the threads take turns.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define FORKS 5
#define STEPS 30

typedef struct {
    pthread_mutex_t lock;
} part;

static part forks[FORKS], steps[STEPS];
static part gate, left, right;

static part *new_part(void)
{
    part *made = malloc(sizeof *made);
    pthread_mutex_init(&made->lock, NULL);
    return made;
}

static void both(part *outer, part *inner)
{
    pthread_mutex_lock(&outer->lock);
    pthread_mutex_lock(&inner->lock);
    pthread_mutex_unlock(&inner->lock);
    pthread_mutex_unlock(&outer->lock);
}

static void *eat(void *argument)
{
    long at = (long)argument;
    usleep(20000 * at);
    for (int round = 0; round < 2; round++) {
        both(&forks[at], &forks[(at + 1) % FORKS]);
        usleep(40000 * FORKS);
    }
    pthread_mutex_lock(&gate.lock);
    if (at % 2)
        both(&left, &right);
    else
        both(&right, &left);
    pthread_mutex_unlock(&gate.lock);
    usleep(200000);
    return NULL;
}

int main(void)
{
    pthread_t threads[FORKS];
    part *made[2];
    for (long at = 0; at < FORKS; at++)
        pthread_create(&threads[at], NULL, eat, (void *)at);
    for (int at = 0; at < FORKS; at++)
        pthread_join(threads[at], NULL);
    for (int at = 0; at < STEPS - 1; at++)
        both(&steps[at], &steps[at + 1]);
    for (int at = 0; at < 2; at++)
        made[at] = new_part();
    both(made[0], made[1]);
    return 0;
}

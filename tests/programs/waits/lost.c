/* A thread waits for a condition that was signalled before, by a thread that has ended. */
#include "say.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;

static void *produce(void *argument)
{
    pthread_cond_signal(&filled);
    return argument;
}

static void *consume(void *argument)
{
    pthread_mutex_lock(&lock);
    say_wait("cond", &filled, 0);
    dprintf(1, "finding lost-wakeup proved %d\nready\n", self());
    pthread_cond_wait(&filled, &lock);
    return argument;
}

int main(void)
{
    pthread_join(start(produce, NULL), NULL);
    pthread_join(start(consume, NULL), NULL);
    return 0;
}

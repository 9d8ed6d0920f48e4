/* A thread locks a mutex that it holds. */
#include "say.h"

static struct { long balance; pthread_mutex_t lock; } account = { 0, PTHREAD_MUTEX_INITIALIZER };

static void *deposit(void *argument)
{
    pthread_mutex_lock(&account.lock);
    say_wait("mutex", &account.lock, self());
    dprintf(1, "finding self-deadlock proved %d\nready\n", self());
    pthread_mutex_lock(&account.lock);
    return argument;
}

int main(void)
{
    prepare(&account.lock);
    start(deposit, NULL);
    for (;;)
        pause();
}

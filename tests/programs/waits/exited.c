/* A thread has ended while it held a mutex. */
#include "say.h"

static pthread_mutex_t printer = PTHREAD_MUTEX_INITIALIZER;
static int owner;

static void *leave(void *argument)
{
    owner = self();
    pthread_mutex_lock(&printer);
    return argument;
}

static void *print(void *argument)
{
    say_wait("mutex", &printer, owner);
    dprintf(1, "finding abandoned-lock inferred %d\nready\n", self());
    pthread_mutex_lock(&printer);
    return argument;
}

int main(void)
{
    pthread_join(start(leave, NULL), NULL);
    start(print, NULL);
    for (;;)
        pause();
}

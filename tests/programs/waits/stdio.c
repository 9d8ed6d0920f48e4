/* A thread has locked a stdio stream. Others wait for it, with the same function and by writing
 * (glibc). */
#include "say.h"

static int owner;
static pthread_barrier_t locked;

static void *keep(void *argument)
{
    owner = self();
    flockfile(stderr);
    pthread_barrier_wait(&locked);
    for (;;)
        pause();
    return argument;
}

static void *want(void *argument)
{
    say_wait("mutex", stderr->_lock, owner);
    flockfile(stderr);
    return argument;
}

static void *print(void *argument)
{
    say_wait("mutex", stderr->_lock, owner);
    fputs("never\n", stderr);
    return argument;
}

int main(void)
{
    pthread_barrier_init(&locked, NULL, 2);
    start(keep, NULL);
    pthread_barrier_wait(&locked);
    start(want, NULL);
    start(print, NULL);
    dprintf(1, "waits 2\nready\n");
    for (;;)
        pause();
}

/* Takes two locks, leaves an idle thread and a held lock, and executes itself in another thread. The
 * second program takes the locks in the other order, which is right: they are its own. */
#include "told.h"

static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t right = PTHREAD_MUTEX_INITIALIZER;

static void both(pthread_mutex_t *outer, pthread_mutex_t *inner)
{
    pthread_mutex_lock(outer);
    pthread_mutex_lock(inner);
    pthread_mutex_unlock(inner);
    pthread_mutex_unlock(outer);
}

static void *before(void *argument)
{
    both(&left, &right);
    return argument;
}

static void *after(void *argument)
{
    both(&right, &left);
    return argument;
}

static void *idle(void *argument)
{
    pause();
    return argument;
}

static void *execute(void *name)
{
    pthread_mutex_lock(&left);
    sleep_us(50000);
    execl("/proc/self/exe", (char *)name, "again", NULL);
    return name;
}

int main(int count, char **words)
{
    if (count > 1) {
        run(after, NULL);
        return 0;
    }
    run(before, NULL);
    start(idle, NULL);
    run(execute, words[0]);
    return 1;
}

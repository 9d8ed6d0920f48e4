/* A thread waits again and again for a mutex that another one holds, each time for 0.7 s. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void *hold(void *argument)
{
    for (;;) {
        pthread_mutex_lock(&turn);
        usleep(700000);
        pthread_mutex_unlock(&turn);
        usleep(2000);
    }
    return argument;
}

int main(void)
{
    pthread_t holder;
    if (pthread_create(&holder, NULL, hold, NULL) != 0)
        return 2;
    puts("ready");
    fflush(stdout);
    for (;;) {
        pthread_mutex_lock(&turn);
        pthread_mutex_unlock(&turn);
        usleep(100);
    }
}

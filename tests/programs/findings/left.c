/* Threads that wait for work until the program ends. That they are not joined is not a mistake. */
#include "told.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static int waiting;

static void *worker(void *argument)
{
    pthread_mutex_lock(&lock);
    waiting++;
    for (;;)
        pthread_cond_wait(&work, &lock);
    return argument;
}

int main(void)
{
    for (int n = 0; n < 8; n++)
        start(worker, NULL);
    for (int all = 0; !all; sleep_us(1000)) {
        pthread_mutex_lock(&lock);
        all = waiting == 8;
        pthread_mutex_unlock(&lock);
    }
    sleep_us(100000);
    return 0;
}

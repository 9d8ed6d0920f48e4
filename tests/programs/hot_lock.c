// A thread that takes a free lock again and again.
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long total;

static void *count(void *unused)
{
    for (int i = 0; i < 100000; i++) {
        pthread_mutex_lock(&lock);
        total++;
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, count, NULL) != 0)
        return 1;
    return pthread_join(thread, NULL);
}

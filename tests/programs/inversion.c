// Two mutexes taken in both orders by two threads, but never at the same time: the program does
// not hang.
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t journal = PTHREAD_MUTEX_INITIALIZER;
static long balance;

static void *deposit(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&accounts);
    pthread_mutex_lock(&journal);
    balance++;
    pthread_mutex_unlock(&journal);
    pthread_mutex_unlock(&accounts);
    return NULL;
}

static void *audit(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&journal);
    pthread_mutex_lock(&accounts);
    balance--;
    pthread_mutex_unlock(&accounts);
    pthread_mutex_unlock(&journal);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    for (int i = 0; i < 3; i++) {
        pthread_create(&thread, NULL, deposit, NULL);
        pthread_join(thread, NULL);
        pthread_create(&thread, NULL, audit, NULL);
        pthread_join(thread, NULL);
    }
    printf("%ld\n", balance);
    return 0;
}

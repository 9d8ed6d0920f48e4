/* Four threads, one of which calls marker(); ends with code 7. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>

char message[16] = "hello, unspool";
static pthread_barrier_t ready, done;

__attribute__((noinline)) int marker(int a, int b, double c)
{
    __asm__ volatile("" ::: "memory");
    return a + b + (int)c;
}

static void *worker(void *argument)
{
    char name[16];
    snprintf(name, sizeof name, "worker-%d", (int)(long)argument);
    pthread_setname_np(pthread_self(), name);
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&done);
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    pthread_barrier_init(&ready, NULL, 4);
    pthread_barrier_init(&done, NULL, 4);
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, worker, (void *)i);
    pthread_barrier_wait(&ready);
    int sum = marker(0x1234, 0x5678, 2.5);
    pthread_barrier_wait(&done);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return sum == 0x68ae && message[0] == 'J' ? 7 : 1;
}

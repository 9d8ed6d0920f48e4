/* A named thread alternately runs and sleeps, 40 times or as often as the argument says, and the
 * first thread waits for it. Both exist when ready() is called. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static sem_t done, leave;
static int turns = 40;
__attribute__((noinline)) void ready(void) { __asm__ volatile(""); }

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void *work(void *arg) {
    pthread_setname_np(pthread_self(), "turns");
    for (int turn = 0; turn < turns; turn++) {
        for (long end = now() + 5000000; now() < end;) { }
        usleep(3000);
    }
    sem_post(&done);
    sem_wait(&leave);
    return arg;
}

int main(int count, char **words) {
    pthread_t id;
    if (count > 1)
        turns = atoi(words[1]);
    sem_init(&done, 0, 0);
    sem_init(&leave, 0, 0);
    pthread_create(&id, NULL, work, NULL);
    sem_wait(&done);
    usleep(1000);
    ready();
    sem_post(&leave);
    pthread_join(id, NULL);
    puts("joined");
    return 0;
}

// Three threads use a semaphore of value 1 as a lock: each takes it, and posts it itself.
//
// Two other threads wait for work at a second semaphore, which main posts. That one is no lock.
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <time.h>

enum { THREADS = 3, ROUNDS = 20, WORKERS = 2 };

static sem_t gate;
static sem_t jobs;

static void pause_ms(long ms) {
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

static void *enter(void *none) {
    for (int round = 0; round < ROUNDS; round++) {
        sem_wait(&gate);
        pause_ms(5);
        sem_post(&gate);
        pause_ms(1);
    }
    return none;
}

static void *work(void *none) {
    for (int round = 0; round < ROUNDS; round++) {
        sem_wait(&jobs);
        pause_ms(1);
    }
    return none;
}

int main(void) {
    pthread_t threads[THREADS + WORKERS];
    sem_init(&gate, 0, 1);
    sem_init(&jobs, 0, 0);
    for (int i = 0; i < THREADS + WORKERS; i++) {
        pthread_create(&threads[i], NULL, i < THREADS ? enter : work, NULL);
    }
    for (int i = 0; i < WORKERS * ROUNDS; i++) {
        pause_ms(4);
        sem_post(&jobs);
    }
    for (int i = 0; i < THREADS + WORKERS; i++) {
        pthread_join(threads[i], NULL);
    }
    return 0;
}

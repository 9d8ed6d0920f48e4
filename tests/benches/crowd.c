/* Threads that wait, each below 16 frames; one thread that works; memory to read. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sem_t here, never;

__attribute__((noinline)) int descend(int depth) {
    if (depth > 0) return descend(depth - 1) + 1;
    sem_post(&here);
    while (sem_wait(&never) != 0) {}
    return 0;
}

static void *work(void *arg) { return (void *)(long)descend((int)(long)arg); }

__attribute__((noinline)) void tick(long *count) { __asm__ volatile("" ::: "memory"); ++*count; }

static void *tire(void *arg) {
    for (;;) { tick(arg); usleep(10); }
    return arg;
}

int main(int argc, char **argv) {
    long threads = atol(argv[1]), depth = atol(argv[2]), megabytes = atol(argv[3]), busy = atol(argv[4]), count = 0;
    sem_init(&here, 0, 0);
    sem_init(&never, 0, 0);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    pthread_t id;
    for (long i = 0; i < threads; i++) if (pthread_create(&id, &attr, work, (void *)depth)) return 1;
    for (long i = 0; i < threads; i++) while (sem_wait(&here) != 0) {}
    if (busy && pthread_create(&id, &attr, tire, &count)) return 1;
    char *memory = malloc(megabytes << 20);
    for (long i = 0; i < megabytes << 20; i++) memory[i] = (char)(i * 7 >> 3);
    printf("%p\n", (void *)memory);
    fflush(stdout);
    while (getchar() != EOF) {}
    _exit(0);
}

/* Threads that all call one function; the program counts its own work. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long rounds;
static long counts[256];

__attribute__((noinline)) void hit(long *count) { __asm__ volatile("" ::: "memory"); ++*count; }

__attribute__((noinline)) void the_end(void) { __asm__ volatile(""); }

static void *work(void *arg) {
    long index = (long)arg;
    char name[16];
    snprintf(name, sizeof name, "worker-%ld", index);
    pthread_setname_np(pthread_self(), name);
    for (long i = 0; i < rounds; i++) hit(&counts[index]);
    return NULL;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 8;
    rounds = argc > 2 ? atol(argv[2]) : 1000;
    pthread_t ids[256];
    for (long i = 0; i < threads; i++) pthread_create(&ids[i], NULL, work, (void *)i);
    for (long i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    the_end();
    long total = 0;
    for (long i = 0; i < threads; i++) total += counts[i];
    printf("total %ld\n", total);
    return total == threads * rounds ? 0 : 1;
}

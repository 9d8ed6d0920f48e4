/* Threads that follow each other in the same memory. Each calls one function several times. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINES = 4, CALLS = 5 };
static long counts[LINES];

__attribute__((noinline)) void hit(long *count) { __asm__ volatile("" ::: "memory"); ++*count; }

__attribute__((noinline)) void the_end(void) { __asm__ volatile(""); }

static void *life(void *count) {
    for (int i = 0; i < CALLS; i++) hit(count);
    return NULL;
}

static long each;
static void *line(void *count) {
    for (long i = 0; i < each; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, life, count)) abort();
        pthread_join(id, NULL);
    }
    return NULL;
}

int main(int argc, char **argv) {
    each = atol(argv[1]);
    pthread_t ids[LINES];
    for (int i = 0; i < LINES; i++) pthread_create(&ids[i], NULL, line, &counts[i]);
    for (int i = 0; i < LINES; i++) pthread_join(ids[i], NULL);
    the_end();
    long total = 0;
    for (int i = 0; i < LINES; i++) total += counts[i];
    printf("total %ld\n", total);
    return 0;
}

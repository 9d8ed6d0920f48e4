/* Calls hit() with some work in between. Arguments: number of threads, calls per thread. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long rounds, total;

__attribute__((noinline)) void hit(long *count) { __asm__ volatile("" ::: "memory"); ++*count; }

__attribute__((noinline)) void rare(void) { __asm__ volatile(""); }

__attribute__((noinline)) void the_end(void) { __asm__ volatile(""); }

static void *work(void *arg) {
    long count = 0;
    for (long i = 0; i < rounds; i++) {
        hit(&count);
        if (i % (rounds / 20) == 0) rare();
        /* About 10 us: 100,000 calls a second. */
        for (volatile int spin = 0; spin < 30000; spin++) {}
    }
    __atomic_add_fetch(&total, count, __ATOMIC_SEQ_CST);
    return arg;
}

int main(int argc, char **argv) {
    long threads = atol(argv[1]);
    rounds = atol(argv[2]);
    pthread_t ids[64];
    for (long i = 0; i < threads; i++) pthread_create(&ids[i], NULL, work, NULL);
    for (long i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    the_end();
    printf("total %ld\n", total);
    return 0;
}

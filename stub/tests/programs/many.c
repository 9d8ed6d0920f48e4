/* Many threads that wait. All exist when ready() is called. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_barrier_t here, leave;
__attribute__((noinline)) void ready(void) { __asm__ volatile(""); }
static void *wait_here(void *arg) { pthread_barrier_wait(&here); pthread_barrier_wait(&leave); return arg; }

int main(int argc, char **argv) {
    int count = atoi(argv[1]);
    pthread_barrier_init(&here, NULL, count + 1);
    pthread_barrier_init(&leave, NULL, count + 1);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 65536);
    pthread_t *ids = calloc(count, sizeof *ids);
    for (int i = 0; i < count; i++) if (pthread_create(&ids[i], &attr, wait_here, NULL)) abort();
    pthread_barrier_wait(&here);
    ready();
    pthread_barrier_wait(&leave);
    for (int i = 0; i < count; i++) pthread_join(ids[i], NULL);
    puts("all gone");
    return 0;
}

/* Counts in two threads until the file named by its argument exists, then checks the counts. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile long ticks[2];
static const char *end;

__attribute__((noinline)) void tick(volatile long *count) { __asm__ volatile("" ::: "memory"); ++*count; }

static void *work(void *arg) {
    do { tick(arg); usleep(500); } while (access(end, F_OK) != 0);
    return NULL;
}

int main(int argc, char **argv) {
    end = argv[1];
    pthread_t id;
    pthread_create(&id, NULL, work, (void *)&ticks[1]);
    work((void *)&ticks[0]);
    pthread_join(id, NULL);
    printf("done %d\n", ticks[0] > 0 && ticks[1] > 0);
    return 7;
}

/* Thousands of short threads. With a second argument, waits until that file exists. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long done;
__attribute__((noinline)) void *short_life(void *arg) { __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST); return arg; }

static void *parent(void *arg) {
    for (long i = 0; i < (long)arg; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, short_life, NULL)) abort();
        pthread_join(id, NULL);
    }
    return NULL;
}

int main(int argc, char **argv) {
    long each = atol(argv[1]);
    while (argc > 2 && access(argv[2], F_OK) != 0) usleep(1000);
    pthread_t ids[4];
    for (int i = 0; i < 4; i++) pthread_create(&ids[i], NULL, parent, (void *)each);
    for (int i = 0; i < 4; i++) pthread_join(ids[i], NULL);
    printf("lived %ld\n", done);
    return done == 4 * each ? 0 : 1;
}

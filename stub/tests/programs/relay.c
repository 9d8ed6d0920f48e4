/* Each thread creates the next one and ends, until the file named by the argument exists. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long made, ended;
static int enough;
static pthread_attr_t detached;

__attribute__((noinline)) void tick(long *count) { __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST); }

static void *runner(void *arg) {
    pthread_t next;
    if (!__atomic_load_n(&enough, __ATOMIC_SEQ_CST)) {
        __atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST);
        if (pthread_create(&next, &detached, runner, arg)) abort();
    }
    tick(&ended);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    made = 8;
    for (int i = 0; i < 8; i++) {
        pthread_t id;
        if (pthread_create(&id, &detached, runner, NULL)) abort();
    }
    while (access(argv[1], F_OK) != 0) usleep(1000);
    __atomic_store_n(&enough, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&ended, __ATOMIC_SEQ_CST) != __atomic_load_n(&made, __ATOMIC_SEQ_CST)) usleep(1000);
    printf("done %d\n", made > 8);
    return 7;
}

/* Runs a function on a thread's stack, to test the frames above it. */
#include <pthread.h>

static volatile int sink;

__attribute__((noinline)) int leaf(int n) { return n * 3 + sink; }

__attribute__((noinline)) void *work(void *argument) {
    for (int i = 0; i < 20; i++)
        sink += leaf(i);
    return argument;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    pthread_join(thread, 0);
    return sink == 7;
}

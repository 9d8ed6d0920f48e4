/* The first thread exits; another goes on, calls a function, as often as the argument says or once, and ends the process with 3; or, if
   there is a second argument, ends alone. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_t first;
static volatile long calls;
static long all = 1;
static int quietly;
__attribute__((noinline)) void alone(void) { __asm__ volatile(""); ++calls; }
static void *other(void *arg) {
    pthread_join(first, NULL);
    usleep(50000);
    for (long i = 0; i < all; i++) alone();
    if (!quietly) exit(3);
    return arg;
}
int main(int argc, char **argv) {
    pthread_t id;
    if (argc > 1) all = atol(argv[1]);
    quietly = argc > 2;
    first = pthread_self();
    pthread_create(&id, NULL, other, NULL);
    pthread_exit(NULL);
}

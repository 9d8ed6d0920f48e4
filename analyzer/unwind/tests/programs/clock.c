/* Reads the time forever, mostly in the vdso. */
#include <time.h>

static volatile long sink;

__attribute__((noinline)) static int ask(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    sink += time.tv_nsec;
    return sink != 1;
}

int main(void) {
    while (ask())
        ;
    return 0;
}

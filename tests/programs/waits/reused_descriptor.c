// Reads from 20 pipes that have one descriptor number after the other. Prints how long it waited
// for each pipe, in nanoseconds.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PIPES = 20, ROUNDS = 2 };

static long long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void write_slowly(int file) {
    for (int i = 0; i < ROUNDS; i++) {
        usleep(60000);
        write(file, "", 1);
    }
}

int main(void) {
    for (int i = 0; i < PIPES; i++) {
        int ends[2];
        char link[32], file[64], byte;
        if (pipe(ends))
            return 1;
        if (fork() == 0) {
            close(ends[0]);
            write_slowly(ends[1]);
            _exit(0);
        }
        close(ends[1]);
        snprintf(link, sizeof link, "/proc/self/fd/%d", ends[0]);
        int length = (int)readlink(link, file, sizeof file);
        long long begin_ns = now_ns();
        while (read(ends[0], &byte, 1) == 1)
            ;
        printf("waited %lld %.*s\n", now_ns() - begin_ns, length, file);
        fflush(stdout);
        close(ends[0]);
        wait(NULL);
    }
    return 0;
}

/* Processes that fork processes, all at once. Each returns the number of processes in its tree. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static long visits;
__attribute__((noinline)) void visited(void) { __asm__ volatile("" ::: "memory"); visits++; }

static int grow(int depth) {
    pid_t children[2];
    int all = 1;
    visits = 0;
    visited();
    if (visits != 1) _exit(0);
    if (depth == 0) return 1;
    for (int i = 0; i < 2; i++) if ((children[i] = fork()) == 0) _exit(grow(depth - 1));
    for (int i = 0; i < 2; i++) {
        int status = -1;
        if (waitpid(children[i], &status, 0) == children[i] && WIFEXITED(status)) all += WEXITSTATUS(status);
    }
    return all;
}

int main(int argc, char **argv) {
    long all = 0;
    for (int i = 0; i < atoi(argv[1]); i++) all += grow(6);
    printf("all %ld\n", all);
    return 0;
}

// Processes that start each other. Each prints its id, its creator's id, its number of threads, and
// its processor time in nanoseconds.
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long long clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void burn(int ms) {
    long long end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000LL;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
}

static void *burner(void *arg) {
    (void)arg;
    burn(50);
    return NULL;
}

static void report(int threads) {
    char line[128];
    int length = snprintf(line, sizeof line, "process %d %d %d %lld\n", getpid(), getppid(), threads,
                          clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    if (write(STDOUT_FILENO, line, length) != length)
        abort();
}

static void wait_for(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            abort();
    if (status != 0)
        abort();
}

// Executes this file again, which forks once more.
static void spawned(void) {
    burn(60);
    pid_t child = fork();
    if (child == 0) {
        burn(30);
        report(1);
        _exit(0);
    }
    wait_for(child);
    report(1);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        spawned();
        return 0;
    }
    pid_t forked = fork();
    if (forked == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, burner, NULL);
        burn(100);
        pthread_join(thread, NULL);
        report(2);
        _exit(0);
    }
    pid_t child;
    char *arguments[] = {argv[0], "spawned", NULL};
    if (posix_spawn(&child, argv[0], NULL, NULL, arguments, environ) != 0)
        abort();
    wait_for(child);
    wait_for(forked);
    return 0;
}

/* Forks, vforks and spawns while breakpoints are planted on what the children execute. */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static long visits;
__attribute__((noinline)) void visited(void) { __asm__ volatile("" ::: "memory"); __atomic_add_fetch(&visits, 1, __ATOMIC_SEQ_CST); }

static int ended(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static void *busy(void *arg) {
    for (long i = 0; i < (long)arg; i++) visited();
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = atoi(argv[2]), bad = 0;
    pthread_t id;
    pthread_create(&id, NULL, busy, (void *)(long)rounds);
    for (int i = 0; i < rounds; i++) {
        pid_t pid;
        if (strchr(argv[1], 'f')) {
            if ((pid = fork()) == 0) { visited(); _exit(42); }
            if (ended(pid) != 42) bad++;
        }
        if (strchr(argv[1], 'v')) {
            if ((pid = vfork()) == 0) { visited(); _exit(43); }
            if (ended(pid) != 43) bad++;
            if ((pid = vfork()) == 0) { visited(); execl("/bin/true", "true", NULL); _exit(1); }
            if (ended(pid) != 0) bad++;
        }
        if (strchr(argv[1], 's')) {
            char *args[] = {"false", NULL};
            if (posix_spawn(&pid, "/bin/false", NULL, NULL, args, environ)) bad++;
            else if (ended(pid) != 1) bad++;
        }
    }
    pthread_join(id, NULL);
    printf("bad %d visits %ld\n", bad, visits);
    return bad;
}

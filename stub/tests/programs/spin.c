/* Threads call a function and count its results, until the file named by the first argument exists.
 * The second argument adds [s]ignals to these threads, [f]orks, short [t]hreads, and loading and
 * [u]nloading of a library, whose path is the third argument. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8 };
static const char *end;
static volatile int over;
static long counts[THREADS], expected[THREADS];
static long sent, taken, made, lived;
static pthread_t ids[THREADS];

__attribute__((noinline)) void hit(long *count) { __asm__ volatile("" ::: "memory"); ++*count; }
__attribute__((noinline)) void never(void) { __asm__ volatile(""); }

static void on_signal(int signal, siginfo_t *info, void *context) {
    long nested = 0;
    hit(&nested);
    __atomic_add_fetch(&taken, nested, __ATOMIC_SEQ_CST);
}

static void *work(void *arg) {
    long index = (long)arg;
    while (!over) { hit(&counts[index]); expected[index]++; }
    return NULL;
}

static void *short_life(void *arg) { hit(arg); return arg; }

int main(int argc, char **argv) {
    const char *kinds = argc > 2 ? argv[2] : "";
    int bad = 0;
    end = argv[1];
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGRTMIN + 1, &action, NULL);
    for (long i = 0; i < THREADS; i++) pthread_create(&ids[i], NULL, work, (void *)i);
    puts("ready");
    fflush(stdout);
    while (access(end, F_OK) != 0) {
        if (strchr(kinds, 's'))
            for (int i = 0; i < THREADS; i++)
                if (pthread_sigqueue(ids[i], SIGRTMIN + 1, (union sigval){.sival_int = i}) == 0) sent++;
        if (strchr(kinds, 'f')) {
            pid_t pid = fork();
            if (pid == 0) { long count = 0; hit(&count); _exit(count == 1 ? 42 : 1); }
            int status = -1;
            if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 42)
                printf("child %d: status %#x\n", pid, status), bad++;
        }
        if (strchr(kinds, 't')) {
            pthread_t id;
            for (int i = 0; i < 10; i++) {
                long count = 0;
                if (pthread_create(&id, NULL, short_life, &count)) { puts("no thread"), bad++; continue; }
                pthread_join(id, NULL);
                made++;
                lived += count;
            }
        }
        if (strchr(kinds, 'u')) {
            void *library = dlopen(argv[3], RTLD_NOW);
            long (*there)(long) = library ? (long (*)(long))dlsym(library, "there") : NULL;
            if (!there || there(20) != 41) printf("library: %s\n", library ? "wrong" : dlerror()), bad++;
            if (library) dlclose(library);
        }
        usleep(500);
    }
    over = 1;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        if (counts[i] != expected[i] || counts[i] == 0) printf("thread %d: %ld of %ld\n", i, counts[i], expected[i]), bad++;
    }
    usleep(10000);
    if (made != lived) printf("threads: %ld of %ld\n", lived, made), bad++;
    if (sent != taken) printf("signals: %ld of %ld\n", taken, sent), bad++;
    printf("bad %d\n", bad);
    return 0;
}

// Threads that are blocked in one system call each, 50 times for 10 ms. Each prints its id, the
// file that it waits for, and what it does. With BY_NUMBER, they make the calls by `syscall`. With
// FORK, they belong to a forked process.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 50 };

#ifdef BY_NUMBER
#define read(file, to, size) syscall(SYS_read, file, to, size)
#define recv(file, to, size, flags) syscall(SYS_recvfrom, file, to, size, flags, NULL, NULL)
#define poll(bells, count, time) syscall(SYS_poll, bells, count, time)
#define nanosleep(time, rest) syscall(SYS_nanosleep, time, rest)
#endif

static int words[2], letters[2], bells[2];

static void pause_for_10_ms(void) {
    struct timespec time = {0, 10000000};
    nanosleep(&time, NULL);
}

static void tell(const char *what, int descriptor) {
    char link[32], file[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = descriptor < 0 ? 0 : readlink(link, file, sizeof file);
    printf("blocked %d %s %.*s\n", gettid(), what, (int)length, file);
    fflush(stdout);
}

static void *reader(void *unused) {
    char byte;
    tell("read", words[0]);
    for (int i = 0; i < ROUNDS; i++)
        read(words[0], &byte, 1);
    return unused;
}

static void *receiver(void *unused) {
    char byte;
    tell("recv", letters[0]);
    for (int i = 0; i < ROUNDS; i++)
        recv(letters[0], &byte, 1, 0);
    return unused;
}

static void *poller(void *unused) {
    char byte;
    tell("poll", -1);
    for (int i = 0; i < ROUNDS; i++) {
        struct pollfd bell = {bells[0], POLLIN, 0};
        poll(&bell, 1, -1);
        read(bells[0], &byte, 1);
    }
    return unused;
}

static void *sleeper(void *unused) {
    tell("nanosleep", -1);
    for (int i = 0; i < ROUNDS; i++)
        pause_for_10_ms();
    return unused;
}

int main(void) {
    void *(*all[])(void *) = {reader, receiver, poller, sleeper};
    enum { COUNT = sizeof all / sizeof *all };
    pthread_t threads[COUNT];
#ifdef FORK
    if (fork() != 0)
        return wait(NULL) < 0;
#endif
    if (pipe(words) || pipe(bells) || socketpair(AF_UNIX, SOCK_STREAM, 0, letters))
        return 1;
    for (int i = 0; i < COUNT; i++)
        pthread_create(&threads[i], NULL, all[i], NULL);
    for (int i = 0; i < ROUNDS; i++) {
        pause_for_10_ms();
        write(words[1], "", 1);
        write(letters[1], "", 1);
        write(bells[1], "", 1);
    }
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

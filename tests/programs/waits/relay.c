// Threads that pass work on through a pipe, a socket pair and an event counter. The middle one
// computes. Three further threads wait for nothing that another thread does.
//
// Prints a line for each thread that waits: its id, the system call, and the id of the thread that
// ends the waits, or 0 if no thread does.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 80, BLOCK = 4096, COMPUTE_MS = 5 };

static int blocks[2], results[2], silence[2], events;
static pid_t transformer, consumer;
static pthread_barrier_t all_known;

static void say(const char *call, pid_t waker) {
    printf("waits %d %s %d\n", gettid(), call, waker);
    fflush(stdout);
}

static void compute(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    int64_t end = now.tv_sec * 1000000000 + now.tv_nsec + COMPUTE_MS * 1000000;
    while (now.tv_sec * 1000000000 + now.tv_nsec < end)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
}

// The pipe has room for one block.
static void *produce(void *unused) {
    static char block[BLOCK];
    pthread_barrier_wait(&all_known);
    say("write", transformer);
    for (int i = 0; i < ROUNDS; i++)
        write(blocks[1], block, BLOCK);
    return unused;
}

static void *transform(void *unused) {
    char block[BLOCK];
    transformer = gettid();
    pthread_barrier_wait(&all_known);
    for (int i = 0; i < ROUNDS; i++) {
        read(blocks[0], block, BLOCK);
        compute();
        send(results[1], block, 1, 0);
    }
    return unused;
}

static void *consume(void *unused) {
    char result;
    consumer = gettid();
    pthread_barrier_wait(&all_known);
    say("recv", transformer);
    for (int i = 0; i < ROUNDS; i++) {
        recv(results[0], &result, 1, 0);
        eventfd_write(events, 1);
    }
    return unused;
}

static void *count(void *unused) {
    eventfd_t number;
    pthread_barrier_wait(&all_known);
    say("read", consumer);
    for (int i = 0; i < ROUNDS; i++)
        eventfd_read(events, &number);
    return unused;
}

static void *rest(void *unused) {
    struct timespec time = {0, 2000000};
    say("nanosleep", 0);
    for (int i = 0; i < ROUNDS; i++)
        nanosleep(&time, NULL);
    return unused;
}

static void *listen_in_vain(void *unused) {
    struct pollfd nothing = {silence[0], POLLIN, 0};
    say("poll", 0);
    for (int i = 0; i < ROUNDS; i++)
        poll(&nothing, 1, 2);
    return unused;
}

// Waits until the program ends.
static void *wait_in_vain(void *unused) {
    char byte;
    say("read", 0);
    read(silence[0], &byte, 1);
    return unused;
}

int main(void) {
    void *(*all[])(void *) = {produce, transform, consume, count, rest, listen_in_vain,
                              wait_in_vain};
    enum { COUNT = sizeof all / sizeof *all, LINKED = 4 };
    pthread_t threads[COUNT];
    events = eventfd(0, EFD_SEMAPHORE);
    if (pipe(blocks) || pipe(silence) || socketpair(AF_UNIX, SOCK_STREAM, 0, results) ||
        events < 0 || fcntl(blocks[1], F_SETPIPE_SZ, BLOCK) != BLOCK)
        return 1;
    pthread_barrier_init(&all_known, NULL, LINKED);
    for (int i = 0; i < COUNT; i++)
        pthread_create(&threads[i], NULL, all[i], NULL);
    for (int i = 0; i < COUNT - 1; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

/* Sleeps in system calls that a stop of the thread ends early or with EINTR (signal(7)), and prints
 * their results: a write to a full pipe, and waits with a time limit. The last thread waits in a
 * call that the kernel restarts. Ends after its input ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int ends[2];
static char bytes[1 << 20];

static void *writes(void *argument)
{
    ssize_t written = write(ends[1], bytes, sizeof bytes);
    close(ends[1]);
    printf("write %zd\n", written);
    return argument;
}

static volatile int polled;

static void *polls(void *argument)
{
    struct epoll_event event;
    int ready = epoll_wait(epoll_create1(0), &event, 1, 8000);
    polled = 1;
    printf("epoll_wait %d %s\n", ready, ready < 0 ? strerrorname_np(errno) : "");
    return argument;
}

/* A socket that waits at most eight seconds for data. */
static int limited_socket(void)
{
    int sockets[2];
    struct timeval limit = {8, 0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 ||
        setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
        return -1;
    return sockets[0];
}

static void *receives(void *argument)
{
    char byte;
    ssize_t received = recv(limited_socket(), &byte, 1, 0);
    printf("recv %zd %s\n", received, received < 0 ? strerrorname_np(errno) : "");
    return argument;
}

static void *reads(void *argument)
{
    char byte;
    ssize_t got = read(limited_socket(), &byte, 1);
    printf("read %zd %s\n", got, got < 0 ? strerrorname_np(errno) : "");
    return argument;
}

static pthread_mutex_t open_input = PTHREAD_MUTEX_INITIALIZER;

static void *waits(void *argument)
{
    pthread_mutex_lock(&open_input);
    pthread_mutex_unlock(&open_input);
    return argument;
}

int main(void)
{
    void *(*functions[])(void *) = {writes, polls, receives, reads, waits};
    enum { COUNT = sizeof functions / sizeof *functions };
    pthread_t threads[COUNT];
    if (pipe(ends) != 0)
        return 2;
    pthread_mutex_lock(&open_input);
    for (int i = 0; i < COUNT; i++)
        pthread_create(&threads[i], NULL, functions[i], NULL);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    pthread_mutex_unlock(&open_input);
    /* The end of the pipe follows also a write that was cut short. */
    while (read(ends[0], bytes, sizeof bytes) > 0)
        ;
    close(ends[0]);
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

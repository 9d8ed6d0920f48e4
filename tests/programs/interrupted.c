/* Sleeps in system calls that a stop of the thread ends early or with EINTR (signal(7)), and prints
 * their results: a write to a full pipe, and two waits with a time limit. Ends after its input
 * ends. */
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
    printf("write %zd\n", written);
    return argument;
}

static void *polls(void *argument)
{
    struct epoll_event event;
    int ready = epoll_wait(epoll_create1(0), &event, 1, 8000);
    printf("epoll_wait %d %s\n", ready, ready < 0 ? strerrorname_np(errno) : "");
    return argument;
}

static void *receives(void *argument)
{
    int sockets[2];
    struct timeval limit = {8, 0};
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 ||
        setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
        return NULL;
    ssize_t received = recv(sockets[0], &byte, 1, 0);
    printf("recv %zd %s\n", received, received < 0 ? strerrorname_np(errno) : "");
    return argument;
}

int main(void)
{
    pthread_t threads[3];
    if (pipe(ends) != 0)
        return 2;
    pthread_create(&threads[0], NULL, writes, NULL);
    pthread_create(&threads[1], NULL, polls, NULL);
    pthread_create(&threads[2], NULL, receives, NULL);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    for (size_t all = 0; all < sizeof bytes;) {
        ssize_t got = read(ends[0], bytes, sizeof bytes);
        if (got <= 0)
            return 2;
        all += (size_t)got;
        /* A write that was cut short leaves less than all. */
        if (got < 4096)
            break;
    }
    close(ends[0]);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

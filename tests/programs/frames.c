/* Creates threads from a function whose frame has 64 KiB, while another thread waits for events and
 * a third one writes more than a pipe holds. Neither call may be interrupted. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { BUFFER = 64 << 10, WRITTEN = 256 << 10 };

static int ends[2];

static void *waits(void *argument)
{
    struct epoll_event event;
    int count = epoll_wait(epoll_create1(0), &event, 1, 400);
    printf("epoll_wait %d %d\n", count, count < 0 ? errno : 0);
    return argument;
}

static void *writes(void *argument)
{
    char *bytes = calloc(1, WRITTEN);
    printf("write %zd\n", write(ends[1], bytes, WRITTEN));
    close(ends[1]);
    return argument;
}

static void *ends_at_once(void *argument)
{
    return argument;
}

int main(void)
{
    volatile char buffer[BUFFER];
    pthread_t first, second, third;
    buffer[0] = 1;
    if (pipe(ends) != 0)
        return 2;
    pthread_create(&first, NULL, waits, NULL);
    pthread_create(&second, NULL, writes, NULL);
    for (int n = 0; n < 3; n++) {
        usleep(20000);
        pthread_create(&third, NULL, ends_at_once, NULL);
        pthread_join(third, NULL);
    }
    while (read(ends[0], (char *)buffer, BUFFER) > 0)
        ;
    pthread_join(second, NULL);
    pthread_join(first, NULL);
    return 0;
}

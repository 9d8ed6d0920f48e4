/* Five threads that idle, the first until it reads a line. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *idle(void *unused)
{
    for (;;)
        poll(NULL, 0, -1);
    return unused;
}

int main(void)
{
    pthread_t thread;
    char line;

    for (int i = 0; i < 4; i++)
        if (pthread_create(&thread, NULL, idle, NULL) != 0)
            return 1;
    puts("idle");
    fflush(stdout);
    while (read(0, &line, 1) != 1)
        if (errno != EINTR)
            return 1;
    puts("still there");
    return 0;
}

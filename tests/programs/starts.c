/* Starts other processes in three ways, while one thread waits for an event and another one writes
 * more than a pipe holds. Neither call may be interrupted. The event comes after the last start. */
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRITTEN = 256 << 10, STARTS = 5 };

extern char **environ;
static char *const arguments[] = {"sleep", "0.03", NULL};
static int ends[2], last_start;

static void *waits(void *argument)
{
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0), count;
    epoll_ctl(set, EPOLL_CTL_ADD, last_start, &event);
    count = epoll_wait(set, &event, 1, 60000);
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

static pid_t start(int way)
{
    pid_t child = -1;
    if (way == 0)
        posix_spawnp(&child, arguments[0], NULL, NULL, arguments, environ);
    else if (way == 1)
        child = fork();
    else
        child = vfork();
    if (child == 0) {
        execvp(arguments[0], arguments);
        _exit(127);
    }
    return child;
}

int main(void)
{
    char buffer[4096];
    pthread_t first, second;
    last_start = eventfd(0, 0);
    if (pipe(ends) != 0 || last_start < 0)
        return 2;
    pthread_create(&first, NULL, waits, NULL);
    pthread_create(&second, NULL, writes, NULL);
    usleep(50000);
    for (int n = 0; n < 3 * STARTS; n++) {
        int status;
        pid_t child = start(n % 3);
        if (waitpid(child, &status, 0) != child || status != 0)
            return 3;
    }
    eventfd_write(last_start, 1);
    pthread_join(first, NULL);
    while (read(ends[0], buffer, sizeof buffer) > 0)
        ;
    pthread_join(second, NULL);
    return 0;
}

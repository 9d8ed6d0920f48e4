// Four threads of three functions, which run before a recorder attaches. The program ends after
// three seconds.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int fds[2];

static void *reads(void *unused)
{
    char byte;
    while (read(fds[0], &byte, 1) == 1)
        ;
    return unused;
}

static void *naps(void *unused)
{
    for (;;)
        usleep(10000);
    return unused;
}

static void *pauses(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(void)
{
    void *(*functions[])(void *) = {reads, naps, pauses, naps};
    if (pipe(fds) != 0)
        return 1;
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, functions[i], NULL) != 0)
            return 1;
    }
    puts("ready");
    fflush(stdout);
    sleep(3);
    return 0;
}

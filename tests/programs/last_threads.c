// Twenty threads that live until the program exits, and one that ends just before.
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_barrier_t begun;
static pid_t brief_tid;

static void *lasting(void *unused)
{
    pthread_barrier_wait(&begun);
    for (;;)
        pause();
    return unused;
}

static void *brief(void *unused)
{
    brief_tid = gettid();
    pthread_barrier_wait(&begun);
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_barrier_init(&begun, NULL, 22);
    for (int i = 0; i < 20; i++)
        if (pthread_create(&thread, NULL, lasting, NULL) != 0)
            return 1;
    if (pthread_create(&thread, NULL, brief, NULL) != 0)
        return 1;
    pthread_barrier_wait(&begun);
    while (syscall(SYS_tgkill, getpid(), brief_tid, 0) == 0)
        usleep(100);
    return 0;
}

/* The parent waits for the end of its child, which waits until the parent reads from a full pipe.
 * A thread waits for the child to write. With -DLARGE the child writes more than the pipe holds in
 * one call, which returns early if a debugger stops the child. With -DALIVE the thread sleeps
 * instead, so that it may still read. With -DOTHER a second child has the reading end of the full
 * pipe, too. With -DTICKS the parent has a timer, whose handler may read from it.
 * With -DOWN the parent has no child, and reads from the pipe that only it can write; with -DHANDLER
 * it has a signal handler that writes to it. */
#include "say.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#ifdef LARGE
#define SIZE (1 << 20)
#else
#define SIZE 4096
#endif

static int full[2], empty[2];

static void *reads(void *none)
{
#ifdef ALIVE
    for (;;)
        usleep(1000);
#endif
    char byte;
    return read(empty[0], &byte, 1) == 1 ? none : NULL;
}

#ifdef TICKS
#include <time.h>

static void on_tick(int signal)
{
    char bytes[64];
    (void)!read(full[0], bytes, sizeof bytes);
    (void)signal;
}

static int tick(void)
{
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct itimerspec hour = {.it_value = {.tv_sec = 3600}};
    timer_t timer;
    return sigaction(SIGALRM, &action, NULL) || timer_create(CLOCK_MONOTONIC, &event, &timer)
        || timer_settime(timer, 0, &hour, NULL);
}
#endif

#ifdef HANDLER
static void on_signal(int signal)
{
    (void)!write(empty[1], &signal, 1);
}
#endif

int main(void)
{
    static const char bytes[SIZE];
    if (pipe(full) != 0 || pipe(empty) != 0)
        return 2;
#ifdef HANDLER
    signal(SIGUSR1, on_signal);
#endif
#ifdef OWN
    dprintf(1, "ready\n");
    return reads(NULL) != NULL;
#endif
#ifdef OTHER
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
#endif
    int child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(full[0]);
        close(empty[0]);
        while (write(full[1], bytes, sizeof bytes) > 0)
            ;
        return 1;
    }
    close(full[1]);
    close(empty[1]);
#ifdef TICKS
    if (tick() != 0)
        return 2;
#endif
    start(reads, NULL);
    dprintf(1, "ready\n");
    waitpid(child, NULL, 0);
    return 0;
}

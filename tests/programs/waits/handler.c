/* A thread that is created in a signal handler, which then waits. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void *child(void *argument) {
    pause();
    return argument;
}

static void on_signal(int signal) {
    (void)signal;
    pthread_t thread;
    pthread_create(&thread, 0, child, 0);
    puts("ready");
    fflush(stdout);
    pause();
}

int main(void) {
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    return 0;
}

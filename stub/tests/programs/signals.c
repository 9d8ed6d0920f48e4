/* Sends itself every kind of signal; handlers count. With an argument, ends by SIGSEGV. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Both threads may run the handler at once. */
static int usr1, usr2, rt, value;
#define ADD(where, what) __atomic_fetch_add(&where, what, __ATOMIC_SEQ_CST)
static void on(int signal, siginfo_t *info, void *context) {
    if (signal == SIGUSR1) ADD(usr1, 1);
    else if (signal == SIGUSR2) ADD(usr2, 1);
    else { ADD(rt, 1); ADD(value, info->si_value.sival_int); }
}
__attribute__((noinline)) void marked(void) { __asm__ volatile(""); }
static volatile int stop;
static void *work(void *arg) { while (!stop) marked(); return NULL; }

int main(int argc, char **argv) {
    struct sigaction action = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGRTMIN + 3, &action, NULL);
    pthread_t id;
    if (argc > 2) pthread_create(&id, NULL, work, NULL);
    for (int i = 0; i < 50; i++) {
        raise(SIGUSR1);
        kill(getpid(), SIGUSR2);
        sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = 5});
    }
    usleep(10000);
    stop = 1;
    if (argc > 2) pthread_join(id, NULL);
    printf("usr1 %d usr2 %d rt %d value %d\n", usr1, usr2 > 0, rt, value);
    fflush(stdout);
    if (argc > 1 && argv[1][0] == 's') *(volatile int *)16 = 1;
    return 0;
}

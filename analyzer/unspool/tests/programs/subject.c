/* The program that the command's tests run: what it does is its first argument. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t seen, last;

static void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) == -1 && errno == EINTR)
        ;
}

static void note_signal(int signal)
{
    seen++;
    last = signal;
}

static void *short_life(void *argument)
{
    return argument;
}

static void *long_life(void *name)
{
    pthread_setname_np(pthread_self(), name);
    for (;;)
        pause_ms(1000);
    return NULL;
}

static sem_t arrived;

static void *waits(void *argument)
{
    sem_post(&arrived);
    for (;;)
        pause_ms(1000);
    return argument;
}

static pthread_mutex_t traffic_lock = PTHREAD_MUTEX_INITIALIZER;

static void *locks_often(void *times)
{
    for (int i = 0; i < *(int *)times; i++) {
        pthread_mutex_lock(&traffic_lock);
        pthread_mutex_unlock(&traffic_lock);
    }
    return NULL;
}

static void one_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, short_life, NULL) != 0)
        exit(99);
    pthread_join(thread, NULL);
}

static void two_workers(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, long_life, "worker-a");
    pthread_create(&thread, NULL, long_life, "worker-b");
}

/* Creates threads until a signal comes. */
static void churn(void)
{
    while (!seen) {
        one_thread();
        pause_ms(1);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(what, "exit")) {
        one_thread();
        return atoi(argv[2]);
    }
    if (!strcmp(what, "echo")) {
        one_thread();
        for (int c; (c = getchar()) != EOF;)
            putchar(c);
        fputs("to stderr\n", stderr);
        return 0;
    }
    if (!strcmp(what, "crash")) {
        one_thread();
        *(volatile int *)8 = 1;
    }
    if (!strcmp(what, "raise")) {
        one_thread();
        raise(atoi(argv[2]));
        return 0;
    }
    if (!strcmp(what, "signals")) {
        /* Every signal that can be caught comes through, SIGTRAP and SIGINT among them. */
        int count = 0;
        for (int signal = 1; signal < 65; signal++) {
            if (signal == SIGKILL || signal == SIGSTOP || signal == 32 || signal == 33)
                continue;
            struct sigaction action = {.sa_handler = note_signal};
            sigaction(signal, &action, NULL);
            seen = 0;
            raise(signal);
            count += seen == 1 && last == signal;
        }
        one_thread();
        printf("%d signals\n", count);
        return 0;
    }
    if (!strcmp(what, "trap")) {
        struct sigaction action = {.sa_handler = note_signal};
        sigaction(SIGTRAP, &action, NULL);
#if defined(__x86_64__)
        __asm__ volatile("int3");
#else
        raise(SIGTRAP);
#endif
        one_thread();
        printf("%d trap\n", (int)seen);
        return 0;
    }
    if (!strcmp(what, "until-signal")) {
        struct sigaction action = {.sa_handler = note_signal};
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        two_workers();
        /* What the probes will change, so that a test can see it unchanged afterwards. */
        printf("ready %p ", (void *)pthread_create);
        for (int i = 0; i < 16; i++)
            printf("%02x", ((unsigned char *)pthread_create)[i]);
        puts("");
        churn();
        pause_ms(100);
        printf("signal %d, %d in all\n", (int)last, (int)seen);
        return 3;
    }
    if (!strcmp(what, "crowd")) {
        /* A thousand threads wait while others come and go as fast as they can. */
        struct sigaction action = {.sa_handler = note_signal};
        sigaction(SIGTERM, &action, NULL);
        pthread_attr_t small;
        sem_init(&arrived, 0, 0);
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 64 * 1024);
        for (int i = 0; i < 1000; i++) {
            pthread_t thread;
            pthread_create(&thread, &small, waits, NULL);
        }
        for (int i = 0; i < 1000; i++)
            sem_wait(&arrived);
        puts("ready");
        while (!seen)
            one_thread();
        return 3;
    }
    if (!strcmp(what, "stubborn")) {
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        two_workers();
        puts("ready");
        pause_ms(20000);
        return 4;
    }
    if (!strcmp(what, "fork")) {
        one_thread();
        pid_t child = fork();
        if (child == 0) {
            one_thread();
            _exit(7);
        }
        int status = 0;
        waitpid(child, &status, 0);
        one_thread();
        return WIFEXITED(status) ? WEXITSTATUS(status) : 90;
    }
    if (!strcmp(what, "vfork")) {
        one_thread();
        return WEXITSTATUS(system("exit 6"));
    }
    if (!strcmp(what, "exec")) {
        pthread_setname_np(pthread_self(), "before");
        one_thread();
        execl(argv[0], argv[0], "exit", "5", (char *)NULL);
        return 91;
    }
    if (!strcmp(what, "overlap")) {
        /* Eight threads alike but for their handles, all under way at once. */
        pthread_t threads[8];
        for (int i = 0; i < 8; i++)
            pthread_create(&threads[i], NULL, short_life, NULL);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
        return 0;
    }
    if (!strcmp(what, "many")) {
        for (int i = 0; i < atoi(argv[2]); i++)
            one_thread();
        return 0;
    }
    if (!strcmp(what, "traffic")) {
        int times = atoi(argv[2]);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, locks_often, &times);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        puts("done");
        return 0;
    }
    fprintf(stderr, "subject: do what?\n");
    return 98;
}

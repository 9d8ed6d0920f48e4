/* Threads that wait for the ticks of a timer, whose handler posts a semaphore. With -DTHREAD the C
 * library creates a thread for each tick. */
#include "say.h"
#include <semaphore.h>
#include <signal.h>
#include <time.h>

static sem_t ticks;

static void on_tick(int signal)
{
    (void)signal;
    sem_post(&ticks);
}

#ifdef THREAD
static void tick_in_thread(union sigval value)
{
    on_tick(value.sival_int);
}
#endif

static void *count(void *argument)
{
    say_wait("sem", &ticks, 0);
    dprintf(1, "ready\n");
    for (;;)
        sem_wait(&ticks);
    return argument;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
#ifdef THREAD
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD};
    event.sigev_notify_function = tick_in_thread;
#endif
    struct itimerspec hour = {.it_value = {.tv_sec = 3600}};
    timer_t timer;
    sem_init(&ticks, 0, 0);
    sigaction(SIGALRM, &action, NULL);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0
        || timer_settime(timer, 0, &hour, NULL) != 0)
        return 2;
    pthread_join(start(count, NULL), NULL);
    return 0;
}

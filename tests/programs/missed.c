/* A thread waits until a word changes. The word changes, but nothing wakes the thread. A stop of the
 * thread would end its wait, because the kernel repeats the call then. As in libstdc++'s atomic
 * waits, the call does not say that the word is private. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int *word;

static void *waits(void *argument)
{
    syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL);
    return argument;
}

int main(void)
{
    pthread_t thread;
    word = calloc(1, sizeof *word);
    if (word == NULL || pthread_create(&thread, NULL, waits, NULL) != 0)
        return 2;
    usleep(200000);
    *word = 5;
    puts("changed");
    fflush(stdout);
    pthread_join(thread, NULL);
    return 0;
}

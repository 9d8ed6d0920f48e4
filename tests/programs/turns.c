// Two threads take turns by futex calls of their own, some thousands of times a second. Prints how
// many of these calls waited and how many woke.
//
//   turns COUNT
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int turn;
static atomic_long waits, wakes;
static int count;

static void *take_turns(void *argument)
{
    int mine = argument != NULL;
    struct timespec pause = {0, 250000};
    for (int i = 0; i < count; i++) {
        while (turn != mine) {
            waits++;
            syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !mine, NULL, NULL, 0);
        }
        nanosleep(&pause, NULL);
        turn = !mine;
        wakes++;
        syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
    return NULL;
}

int main(int words, char **word)
{
    count = words > 1 ? atoi(word[1]) : 1000;
    pthread_t other;
    pthread_create(&other, NULL, take_turns, &turn);
    take_turns(NULL);
    pthread_join(other, NULL);
    printf("%ld waits, %ld wakes\n", waits, wakes);
    return 0;
}

/* Threads that create threads, four deep: every thread of depth < 4 creates two more, the second
 * after the first has ended. One thread at a time, because qemu-user's gdb server cannot stop
 * two. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *branch(void *argument);

static intptr_t spawn_two(intptr_t depth)
{
    intptr_t total = 0;
    for (int n = 0; n < 2; n++) {
        pthread_t child;
        void *below;
        if (pthread_create(&child, NULL, branch, (void *)depth) != 0)
            exit(2);
        pthread_join(child, &below);
        total += (intptr_t)below;
    }
    return total;
}

static void *branch(void *argument)
{
    intptr_t depth = (intptr_t)argument;
    return (void *)(depth < 4 ? 1 + spawn_two(depth + 1) : 1);
}

int main(void)
{
    long total = spawn_two(1);
    printf("nest: %ld threads\n", total);
    return total == 30 ? 0 : 1;
}

/* Threads that create threads, four deep: every thread of depth < 4 creates two more. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *branch(void *argument);

static intptr_t spawn_two(intptr_t depth)
{
    pthread_t children[2];
    intptr_t total = 0;
    for (int n = 0; n < 2; n++)
        if (pthread_create(&children[n], NULL, branch, (void *)depth) != 0)
            exit(2);
    for (int n = 0; n < 2; n++) {
        void *below;
        pthread_join(children[n], &below);
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

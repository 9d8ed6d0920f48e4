/* A thread created 200 calls deep. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *leaf(void *argument)
{
    return (void *)((intptr_t)argument + 1);
}

static intptr_t create_at_the_bottom(void)
{
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, NULL, leaf, (void *)41) != 0)
        exit(2);
    pthread_join(thread, &result);
    return (intptr_t)result;
}

__attribute__((noinline)) static intptr_t descend(int depth)
{
    volatile int here = depth; /* keeps every call a frame of its own */
    intptr_t below = depth > 1 ? descend(depth - 1) : create_at_the_bottom();
    return below + (here != depth);
}

int main(void)
{
    intptr_t result = descend(200);
    printf("recursion: %ld\n", (long)result);
    return result == 42 ? 0 : 1;
}

/* Threads in sequence, each ended before the next is created: three hundred, or as many as the
 * argument says. The kernel may reuse thread ids, and the C library reuses their stacks and
 * descriptors. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *blink(void *argument)
{
    *(int *)argument += 1;
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 300;
    int count = 0;
    for (int n = 0; n < threads; n++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, blink, &count) != 0)
            return 2;
        pthread_join(thread, NULL);
    }
    printf("shortlived: %d threads\n", count);
    return count == threads ? 0 : 1;
}

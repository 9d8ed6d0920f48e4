/* Three hundred threads in sequence, each ended before the next is created. The kernel may reuse
 * thread ids, and the C library reuses their stacks and descriptors. */
#include <pthread.h>
#include <stdio.h>

static void *blink(void *argument)
{
    *(int *)argument += 1;
    return NULL;
}

int main(void)
{
    int count = 0;
    for (int n = 0; n < 300; n++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, blink, &count) != 0)
            return 2;
        pthread_join(thread, NULL);
    }
    printf("shortlived: %d threads\n", count);
    return count == 300 ? 0 : 1;
}

/* A function with a 1 MB frame creates a thread. A copy of a fixed number of bytes at the stack
 * pointer does not contain its callers. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void *count_ones(void *argument)
{
    unsigned char *bytes = argument;
    size_t ones = 0;
    for (size_t n = 0; n < 1 << 20; n++)
        ones += bytes[n] == 1;
    return (void *)ones;
}

__attribute__((noinline)) static size_t with_a_megabyte(int value)
{
    unsigned char bytes[1 << 20];
    pthread_t thread;
    void *ones;
    memset(bytes, value, sizeof bytes);
    if (pthread_create(&thread, NULL, count_ones, bytes) != 0)
        return 0;
    pthread_join(thread, &ones);
    return (size_t)ones;
}

__attribute__((noinline)) static size_t caller(int value)
{
    return with_a_megabyte(value) + with_a_megabyte(value + 1);
}

int main(void)
{
    size_t ones = caller(1);
    printf("bigframe: %zu ones\n", ones);
    return ones == 1 << 20 ? 0 : 1;
}

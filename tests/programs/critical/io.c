/* One thread reads blocks from a slow device, which is a process behind a pipe, and three threads
 * compress them. Repaired: the device is twice as fast. */
#include <sys/wait.h>
#include <unistd.h>

#include "work.h"

#define BLOCKS 200
#define THREADS 3

static struct queue blocks = QUEUE;
static int source;

static void *read_blocks(void *argument)
{
    for (char block; read(source, &block, 1) == 1;) {
        compute(100);
        put(&blocks, 1);
    }
    for (int n = 0; n < THREADS; n++)
        put(&blocks, 0);
    return argument;
}

static void *compress(void *argument)
{
    while (take(&blocks))
        compute(500);
    return argument;
}

int main(int count, char **words)
{
    int ends[2];
    if (pipe(ends))
        abort();
    pid_t child = fork();
    if (child == 0) {
        int block_us = is_repaired(count, words) ? 1000 : 2000;
        close(ends[0]);
        for (int block = 0; block < BLOCKS; block++) {
            device(block_us);
            if (write(ends[1], "b", 1) != 1)
                break;
        }
        _exit(0);
    }
    close(ends[1]);
    source = ends[0];
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++)
        threads[n] = start(compress, NULL);
    pthread_join(start(read_blocks, NULL), NULL);
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    waitpid(child, NULL, 0);
    return 0;
}

/* The first thread exits. Another calls a function, once or as often as the argument says, and ends
 * the process with 3. Second argument: with "returns" the other thread only returns; with "waits"
 * the first thread stays alive. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_t first;
static volatile long calls;
static long all = 1;
static const char *otherwise = "";
__attribute__((noinline)) void alone(void) { __asm__ volatile(""); ++calls; }
static void *other(void *arg) {
    if (strcmp(otherwise, "waits")) pthread_join(first, NULL);
    usleep(50000);
    for (long i = 0; i < all; i++) alone();
    if (strcmp(otherwise, "returns")) exit(3);
    return arg;
}
int main(int argc, char **argv) {
    pthread_t id;
    if (argc > 1) all = atol(argv[1]);
    if (argc > 2) otherwise = argv[2];
    first = pthread_self();
    pthread_create(&id, NULL, other, NULL);
    if (!strcmp(otherwise, "waits")) pthread_join(id, NULL);
    pthread_exit(NULL);
}

/* The first thread exits; another goes on, and ends the process with 3. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_t first;
__attribute__((noinline)) void alone(void) { __asm__ volatile(""); }
static void *other(void *arg) { pthread_join(first, NULL); usleep(50000); alone(); exit(3); return arg; }
int main(void) {
    pthread_t id;
    first = pthread_self();
    pthread_create(&id, NULL, other, NULL);
    pthread_exit(NULL);
}

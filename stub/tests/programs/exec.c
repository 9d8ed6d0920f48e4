/* Executes itself from a thread that is not the first, while others run. The second run ends with
 * exit code 9. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static char *self;
__attribute__((noinline)) void again(void) { __asm__ volatile(""); }
static void *spin(void *arg) { for (;;) usleep(100); return arg; }
static void *change(void *arg) { usleep(20000); execl(self, self, "second", NULL); abort(); return arg; }
int main(int argc, char **argv) {
    if (argc > 1) { again(); return 9; }
    self = argv[0];
    pthread_t id;
    for (int i = 0; i < 4; i++) pthread_create(&id, NULL, spin, NULL);
    pthread_create(&id, NULL, change, NULL);
    for (;;) pause();
}

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
/* Thread-local variables of the program and of a library that is loaded later. Each holds the
 * number of its thread. */
_Thread_local int own = 1;
static int *(*plugin)(void);
static pthread_barrier_t barrier;
static void meet(void) {}
static void *run(void *number) {
    own = (int)(long)number;
    *plugin() = 100 + own;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}
int main(int argc, char **argv) {
    if (argc < 2) return 2;
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 3; }
    plugin = (int *(*)(void))dlsym(library, "place");
    pthread_barrier_init(&barrier, NULL, 3);
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, run, (void *)(i + 2));
    *plugin() = 101;
    pthread_barrier_wait(&barrier);
    meet();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}

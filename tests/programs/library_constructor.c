/* libconstructor.so: linked to `library`, starts a thread when it is loaded. */
#include <pthread.h>
#include <stdlib.h>

static int ran;

static void *early(void *argument)
{
    *(int *)argument = 1;
    return NULL;
}

__attribute__((constructor)) static void on_load(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, early, &ran) != 0)
        exit(2);
    pthread_join(thread, NULL);
}

int library_constructed(void)
{
    return ran;
}

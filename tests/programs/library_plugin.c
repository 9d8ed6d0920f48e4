/* libplugin.so: loaded by `library` with dlopen. */
#include <pthread.h>

static void *plugged(void *argument)
{
    __atomic_add_fetch((int *)argument, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int start(pthread_t *threads, int count, int *ran)
{
    for (int n = 0; n < count; n++)
        if (pthread_create(&threads[n], NULL, plugged, ran) != 0)
            return -1;
    return 0;
}

int plugin_run(int count)
{
    pthread_t threads[8];
    int ran = 0;
    if (count > 8 || start(threads, count, &ran) != 0)
        return -1;
    for (int n = 0; n < count; n++)
        pthread_join(threads[n], NULL);
    return ran;
}

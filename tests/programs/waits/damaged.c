/* Threads wait for mutexes whose memory is then damaged, or freed and reused. A tool that trusts
 * it sees holders that do not exist, or threads that wait for themselves. Nothing is known, so
 * there must be no finding. */
#include "say.h"
#include <stdlib.h>
#include <string.h>

enum { COUNT = 10 };
static pthread_mutex_t *mutexes[COUNT];
static int tids[COUNT];

static void *lock(void *argument)
{
    long own = (long)argument;
    tids[own] = self();
    pthread_mutex_lock(mutexes[own]);
    return argument;
}

/* Waits until the kernel shows it waiting there. */
static void settle(long own)
{
    char path[64], call[64], expected[64];
    snprintf(expected, sizeof expected, "%d %#lx ", SYS_futex, (unsigned long)(uintptr_t)mutexes[own]);
    do {
        usleep(1000);
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tids[own]);
        FILE *file = fopen(path, "r");
        if (file == NULL || fgets(call, sizeof call, file) == NULL)
            call[0] = 0;
        if (file != NULL)
            fclose(file);
    } while (strncmp(call, expected, strlen(expected)) != 0);
}

int main(void)
{
    for (long n = 0; n < COUNT; n++) {
        mutexes[n] = malloc(sizeof(pthread_mutex_t));
        pthread_mutex_init(mutexes[n], NULL);
        pthread_mutex_lock(mutexes[n]);
        start(lock, (void *)n);
        settle(n);
        int no_thread = 4194303;
        if (n == 6)
            dprintf(1, "wait %d mutex %#lx %d\n", tids[n], (unsigned long)(uintptr_t)mutexes[n], no_thread);
        else
            dprintf(1, "wait %d mutex %#lx\n", tids[n], (unsigned long)(uintptr_t)mutexes[n]);
    }
    /* Owners that are not valid thread ids, or the id of no thread. */
    mutexes[0]->__data.__owner = 0x41414141;
    mutexes[6]->__data.__owner = 4194303;
    memset(mutexes[1], 0xaa, sizeof(pthread_mutex_t));
    memset((char *)mutexes[2] + 4, 0, sizeof(pthread_mutex_t) - 4);
    /* Kinds: destroyed; robust, although it was not. */
    mutexes[3]->__data.__kind = -1;
    mutexes[4]->__data.__kind |= 16;
    /* The waiter is the owner, but the mutex is free, or held more often than its kind allows, or
     * destroyed. */
    mutexes[5]->__data.__owner = tids[5];
    mutexes[5]->__data.__nusers = 0;
    mutexes[7]->__data.__owner = tids[7];
    mutexes[7]->__data.__count = 5;
    mutexes[8]->__data.__owner = tids[8];
    mutexes[8]->__data.__kind = 0x7f;
    /* Freed and reused. */
    void *before = mutexes[9];
    free(before);
    char *text = malloc(sizeof(pthread_mutex_t));
    strcpy(text, "this was a mutex, and is now a text");
    if ((void *)text != before)
        return 2;
    dprintf(1, "ready\n");
    for (;;)
        pause();
}

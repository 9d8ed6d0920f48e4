// Threads that queue at a mutex: main holds it until all of them wait, and then lets them through
// one by one. Prints the mutex, its first holder, and the waiters.
//
//   convoy THREADS MILLISECONDS   the time for which it is held once all wait
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 1000

static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static long tids[MOST];
static long passed;

static void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void *pass(void *number)
{
    __atomic_store_n(&tids[(intptr_t)number], syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&door);
    passed++;
    pthread_mutex_unlock(&door);
    return NULL;
}

// The kernel shows it asleep, so it waits for the mutex: it waits for nothing else.
static int waits(long tid)
{
    char path[64], text[256] = "";
    if (tid == 0)
        return 0;
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", tid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    char *end = strrchr(text, ')');
    return end && end[2] == 'S';
}

int main(int count, char **words)
{
    int threads = count > 1 ? atoi(words[1]) : 4;
    long ms = count > 2 ? atol(words[2]) : 50;
    if (threads < 1 || threads > MOST)
        return 2;
    static pthread_t made[MOST];
    pthread_mutex_lock(&door);
    for (int i = 0; i < threads; i++)
        pthread_create(&made[i], NULL, pass, (void *)(intptr_t)i);
    for (int i = 0; i < threads; i++)
        for (int times = 0; times < 3; times += waits(__atomic_load_n(&tids[i], __ATOMIC_SEQ_CST)))
            sleep_ms(1);
    sleep_ms(ms);
    pthread_mutex_unlock(&door);
    for (int i = 0; i < threads; i++)
        pthread_join(made[i], NULL);
    printf("%#lx %ld\n", (unsigned long)(uintptr_t)&door, (long)syscall(SYS_gettid));
    for (int i = 0; i < threads; i++)
        printf("%ld\n", tids[i]);
    return passed == threads ? 0 : 1;
}

/* Eight threads compute on one processor. Repaired: they have two. */
#include "work.h"

#include <sched.h>

#define THREADS 8

static void *calculate(void *argument)
{
    compute(60000);
    return argument;
}

int main(int count, char **words)
{
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE && found <= is_repaired(count, words); cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &one);
            found++;
        }
    }
    sched_setaffinity(0, sizeof one, &one);
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++)
        threads[n] = start(calculate, NULL);
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    return 0;
}

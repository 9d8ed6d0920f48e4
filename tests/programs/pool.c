/* Eight workers that all run `worker`, created on three different paths: three by `start_pool`,
 * four by `grow` called at two places, one by `replace`. Only the place of creation tells them
 * apart, not their name or function. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct job {
    unsigned from, to;
    unsigned long sum;
};

static struct job jobs[8];
static pthread_t threads[8];
static unsigned used;

/* Unknown to the compiler, which would unroll the loops and give every worker its own path. */
static volatile unsigned first = 3, more = 2;

static void *worker(void *argument)
{
    struct job *job = argument;
    for (unsigned n = job->from; n < job->to; n++)
        job->sum += n;
    return NULL;
}

static void launch(void)
{
    jobs[used].from = used * 1000;
    jobs[used].to = used * 1000 + 1000;
    if (pthread_create(&threads[used], NULL, worker, &jobs[used]) != 0)
        exit(2);
    used++;
}

static void start_pool(unsigned count)
{
    for (unsigned n = 0; n < count; n++)
        launch();
}

static void grow(unsigned by)
{
    while (by-- > 0)
        launch();
}

__attribute__((noinline)) static int replace(void)
{
    launch();
    return (int)used;
}

int main(void)
{
    start_pool(first);
    grow(more);
    grow(more);
    int count = replace();

    unsigned long sum = 0;
    for (int n = 0; n < count; n++) {
        pthread_join(threads[n], NULL);
        sum += jobs[n].sum;
    }
    printf("pool: %d workers, sum %lu\n", count, sum);
    return sum == 31996000 ? 0 : 1;
}

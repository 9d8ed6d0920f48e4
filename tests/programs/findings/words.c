/* Three threads wait for one object of each kind, at whichever of its words the C library chooses.
 * Prints the address of each object: `KIND ADDRESS`. */
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAITERS 3

/* No object starts at a variable's own address. */
static struct {
    long before;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    pthread_rwlock_t rwlock;
    sem_t sem;
    pthread_barrier_t barrier;
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .rwlock = PTHREAD_RWLOCK_INITIALIZER};

static int turn, about_to_wait, tids[WAITERS], changed;
static pthread_t threads[WAITERS];

/* A sleeping thread has reached its wait, because it does nothing else. While it is recorded, it
 * may be stopped in between. */
static void sleeps(int tid)
{
    for (int seen = 0; seen < 10;) {
        char path[64], state = 0;
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
        FILE *stat = fopen(path, "r");
        if (stat == NULL || fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
            return;
        fclose(stat);
        seen += state == 'S';
        usleep(1000);
    }
}

static void begin(void *(*work)(void *))
{
    for (intptr_t i = 0; i < WAITERS; i++) {
        pthread_create(&threads[i], NULL, work, (void *)i);
        while (__atomic_load_n(&about_to_wait, __ATOMIC_ACQUIRE) != turn + 1)
            usleep(1000);
        turn++;
        sleeps(tids[i]);
    }
}

static void end(void)
{
    for (int i = 0; i < WAITERS; i++)
        pthread_join(threads[i], NULL);
}

static void say(void *index)
{
    tids[(intptr_t)index] = (int)syscall(SYS_gettid);
    __atomic_add_fetch(&about_to_wait, 1, __ATOMIC_RELEASE);
}

static void *lock(void *index)
{
    say(index);
    pthread_mutex_lock(&all.mutex);
    pthread_mutex_unlock(&all.mutex);
    return NULL;
}

static void *wait_for_change(void *index)
{
    pthread_mutex_lock(&all.mutex);
    say(index);
    while (!changed)
        pthread_cond_wait(&all.cond, &all.mutex);
    pthread_mutex_unlock(&all.mutex);
    return NULL;
}

static void *lock_shared(void *index)
{
    say(index);
    if (index == NULL)
        pthread_rwlock_rdlock(&all.rwlock);
    else
        pthread_rwlock_wrlock(&all.rwlock);
    pthread_rwlock_unlock(&all.rwlock);
    return NULL;
}

static void *take(void *index)
{
    say(index);
    sem_wait(&all.sem);
    return NULL;
}

static void *arrive(void *index)
{
    say(index);
    pthread_barrier_wait(&all.barrier);
    return NULL;
}

int main(void)
{
    sem_init(&all.sem, 0, 0);
    pthread_barrier_init(&all.barrier, NULL, WAITERS + 1);
    printf("mutex %#lx\ncond %#lx\nrwlock %#lx\nsem %#lx\nbarrier %#lx\n", (unsigned long)&all.mutex, (unsigned long)&all.cond,
           (unsigned long)&all.rwlock, (unsigned long)&all.sem, (unsigned long)&all.barrier);
    fflush(stdout);
    pthread_mutex_lock(&all.mutex);
    begin(lock);
    pthread_mutex_unlock(&all.mutex);
    end();
    begin(wait_for_change);
    pthread_mutex_lock(&all.mutex);
    changed = 1;
    pthread_cond_broadcast(&all.cond);
    pthread_mutex_unlock(&all.mutex);
    end();
    /* Writers wait for the reader at one word, and for each other at another. */
    pthread_rwlock_rdlock(&all.rwlock);
    begin(lock_shared);
    pthread_rwlock_unlock(&all.rwlock);
    end();
    pthread_rwlock_wrlock(&all.rwlock);
    begin(lock_shared);
    pthread_rwlock_unlock(&all.rwlock);
    end();
    begin(take);
    for (int i = 0; i < WAITERS; i++)
        sem_post(&all.sem);
    end();
    begin(arrive);
    pthread_barrier_wait(&all.barrier);
    end();
    return 0;
}

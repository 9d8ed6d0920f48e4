/* Mutexes in memory that two processes share. Each process takes one and waits for the other's,
 * which is a deadlock. With -DGATE, a third mutex prevents the deadlock: the processes wait for
 * each other all the time, but never both at once. */
#include "say.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

struct common {
    pthread_mutex_t locks[3];
    volatile int tids[2];
};

static struct common *common;

#ifdef GATE
/* Takes both locks in the order of this process, and then its second lock alone. */
static void turns(int own)
{
    pthread_mutex_t *first = &common->locks[own], *second = &common->locks[1 - own];
    for (;;) {
        pthread_mutex_lock(&common->locks[2]);
        pthread_mutex_lock(first);
        usleep(30000);
        pthread_mutex_lock(second);
        pthread_mutex_unlock(second);
        pthread_mutex_unlock(first);
        pthread_mutex_unlock(&common->locks[2]);
        pthread_mutex_lock(second);
        usleep(30000);
        pthread_mutex_unlock(second);
    }
}
#endif

static void *locks(void *number)
{
    int own = (int)(intptr_t)number;
#ifdef GATE
    turns(own);
#endif
    pthread_mutex_lock(&common->locks[own]);
    common->tids[own] = self();
    while (common->tids[1 - own] == 0)
        usleep(1000);
    say_wait("mutex", &common->locks[1 - own], common->tids[1 - own]);
    if (own == 0)
        dprintf(1, "finding deadlock proved %d %d\nwaits 2\nready\n", common->tids[0],
                common->tids[1]);
    pthread_mutex_lock(&common->locks[1 - own]);
    return number;
}

int main(void)
{
    int file = memfd_create("locks", 0);
    if (file < 0 || ftruncate(file, sizeof *common) != 0)
        return 2;
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    for (int i = 0; i < 3; i++)
        pthread_mutex_init(&common->locks[i], &attr);
    int child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        locks((void *)1);
        return 0;
    }
#ifdef GATE
    dprintf(1, "ready\n");
#endif
    pthread_join(start(locks, (void *)0), NULL);
    return 0;
}

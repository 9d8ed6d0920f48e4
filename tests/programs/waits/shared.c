/* A mutex that two processes share: the child holds it, the parent waits. There is no finding. */
#include "say.h"
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>

struct common { pthread_mutex_t lock; volatile int owner; };

int main(void)
{
    struct common *common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&common->lock, &attr);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pthread_mutex_lock(&common->lock);
        common->owner = self();
        for (;;)
            pause();
    }
    while (common->owner == 0)
        usleep(1000);
    say_wait("mutex", &common->lock, common->owner);
    dprintf(1, "ready\n");
    pthread_mutex_lock(&common->lock);
    return 0;
}

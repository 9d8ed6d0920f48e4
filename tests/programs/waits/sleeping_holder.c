/* A child holds a mutex in shared memory and sleeps now and then. Its parent waits for the mutex. */
#include "say.h"
#include <sys/mman.h>
#include <sys/prctl.h>

int main(void)
{
    pthread_mutex_t *mutex =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attr;
    int held[2];
    if (mutex == MAP_FAILED || pipe(held) != 0)
        return 2;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(mutex, &attr);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, 9);
        pthread_mutex_lock(mutex);
        for (write(held[1], "", 1);;)
            usleep(1000);
    }
    char byte;
    if (read(held[0], &byte, 1) != 1)
        return 3;
    dprintf(1, "ready\n");
    pthread_mutex_lock(mutex);
    return 0;
}

/* Four processes sleep while they hold one mutex in memory that they share. */

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    pthread_mutex_t *lock =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(lock, &shared);
    for (int process = 0; process < 4; process++) {
        if (fork() == 0) {
            for (int turn = 0; turn < 40; turn++) {
                pthread_mutex_lock(lock);
                nanosleep(&(struct timespec){0, 4000000}, NULL);
                pthread_mutex_unlock(lock);
                nanosleep(&(struct timespec){0, 1000000}, NULL);
            }
            _exit(0);
        }
    }
    while (wait(NULL) > 0) {
    }
}

// main parks two helper threads with one mutex each, as Redis does with its I/O threads. It holds a
// helper's mutex as long as the helper has nothing to do.
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

enum { HELPERS = 2, ROUNDS = 8 };

static pthread_mutex_t parked[HELPERS];
static atomic_int jobs[HELPERS];
static atomic_int done;

static void pause_ms(long ms) {
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

static void *help(void *number) {
    size_t me = (size_t)number;
    while (!done) {
        if (jobs[me] == 0) {
            pthread_mutex_lock(&parked[me]);
            pthread_mutex_unlock(&parked[me]);
            pause_ms(1);
            continue;
        }
        jobs[me] = 0;
    }
    return NULL;
}

int main(void) {
    pthread_t threads[HELPERS];
    for (size_t i = 0; i < HELPERS; i++) {
        pthread_mutex_init(&parked[i], NULL);
        pthread_mutex_lock(&parked[i]);
        pthread_create(&threads[i], NULL, help, (void *)i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        pause_ms(60);
        for (int i = 0; i < HELPERS; i++) {
            jobs[i] = 1;
            pthread_mutex_unlock(&parked[i]);
        }
        pause_ms(2);
        for (int i = 0; i < HELPERS; i++) {
            pthread_mutex_lock(&parked[i]);
        }
    }
    done = 1;
    for (int i = 0; i < HELPERS; i++) {
        pthread_mutex_unlock(&parked[i]);
        pthread_join(threads[i], NULL);
    }
    return 0;
}

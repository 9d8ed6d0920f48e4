/* The offsets of the fields that inspect reads, from this C library's own headers
 * (bits/struct_mutex.h, bits/struct_rwlock.h, bits/thread-shared-types.h). A test compares them
 * with the analyzer's table of layouts. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>

#define at(type, field) (int)offsetof(type, __data.field)

int main(void)
{
    printf("mutex.word %d\n", at(pthread_mutex_t, __lock));
    printf("mutex.owner %d\n", at(pthread_mutex_t, __owner));
    printf("mutex.kind %d\n", at(pthread_mutex_t, __kind));
    printf("mutex.count %d\n", at(pthread_mutex_t, __count));
    printf("mutex.users %d\n", at(pthread_mutex_t, __nusers));
    printf("rwlock.readers %d\n", at(pthread_rwlock_t, __readers));
    printf("rwlock.read_word %d\n", at(pthread_rwlock_t, __wrphase_futex));
    printf("rwlock.write_word %d\n", at(pthread_rwlock_t, __writers_futex));
    printf("rwlock.writer %d\n", at(pthread_rwlock_t, __cur_writer));
    printf("rwlock.size %d\n", (int)sizeof(pthread_rwlock_t));
    printf("cond.words %d %d\n", at(pthread_cond_t, __g_signals[0]), at(pthread_cond_t, __g_signals[1]));
    printf("cond.size %d\n", (int)sizeof(pthread_cond_t));
    return 0;
}

/* Executes every class of instruction in four threads. The output must not depend on tracing. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static long table[4] = {3, 5, 7, 11};
static volatile long shared;
long constant = 0x1234;

__attribute__((noinline)) long add_up(long a, long b) { return a * 31 + b; }

/* Relative operands, jumps, calls, exclusive and repeated instructions. */
__attribute__((noinline)) long classes(long n) {
    long sum = constant + n;
    switch (n & 7) {
    case 0: sum += 17; break;
    case 1: sum ^= 0x55; break;
    case 2: sum *= 3; break;
    case 3: sum -= 9; break;
    case 4: sum <<= 1; break;
    case 5: sum |= 0x80; break;
    default: sum += table[n & 3];
    }
    for (int i = 0; i < 3; i++) sum = add_up(sum, table[i]);
    long (*volatile indirect)(long, long) = add_up;
    sum = indirect(sum, n);
    char copy[64];
    memset(copy, (int)n, sizeof copy);
    sum += copy[n & 63];
    double half = (double)sum / 2.0;
    __atomic_fetch_add(&shared, 1, __ATOMIC_SEQ_CST);
    return (long)half ^ sum;
}

__attribute__((noinline)) long system_call(void) { return syscall(SYS_getppid) == getppid(); }

__attribute__((noinline)) static void *work(void *argument) {
    long sum = (long)argument;
    for (long i = 0; i < 200; i++) {
        sum += classes(sum + i);
        sum += system_call();
    }
    return (void *)sum;
}

__attribute__((noinline)) void the_end(void) { __asm__ volatile(""); }

int main(void) {
    pthread_t threads[4];
    unsigned long total = 0;
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 4; i++) {
        void *sum;
        pthread_join(threads[i], &sum);
        total += (unsigned long)sum;
    }
    the_end();
    printf("total %lx shared %ld\n", total, shared);
    return 0;
}

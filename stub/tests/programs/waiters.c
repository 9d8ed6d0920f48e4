/* Threads that wait for their turn with their own system call. The program counts the calls. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 4 };
static int words[THREADS];
static long calls;
static long rounds;

/* Waits while the word is 0. `call` labels the system call instruction. */
__attribute__((noinline)) static long wait_at(int *word) {
#if defined(__x86_64__)
    register long timeout __asm__("r10") = 0;
    long result;
    __asm__ volatile(".globl call\ncall: syscall" : "=a"(result)
                     : "a"(SYS_futex), "D"(word), "S"(FUTEX_WAIT), "d"(0), "r"(timeout) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x0 __asm__("x0") = (long)word;
    register long x1 __asm__("x1") = FUTEX_WAIT, x2 __asm__("x2") = 0, x3 __asm__("x3") = 0, x8 __asm__("x8") = SYS_futex;
    __asm__ volatile(".globl call\ncall: svc #0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x8) : "memory");
    return x0;
#else
    register long r0 __asm__("r0") = (long)word;
    register long r1 __asm__("r1") = FUTEX_WAIT, r2 __asm__("r2") = 0, r3 __asm__("r3") = 0;
    __asm__ volatile("push {r7}\n\tmov r7, %[number]\n\t.globl call\ncall: svc #0\n\tpop {r7}"
                     : "+r"(r0) : "r"(r1), "r"(r2), "r"(r3), [number] "I"(SYS_futex) : "memory");
    return r0;
#endif
}

static void *work(void *arg) {
    int index = (long)arg;
    for (long round = 0; round < rounds; round++) {
        while (!__atomic_load_n(&words[index], __ATOMIC_SEQ_CST)) {
            __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
            wait_at(&words[index]);
        }
        __atomic_store_n(&words[index], 0, __ATOMIC_SEQ_CST);
        int next = (index + 1) % THREADS;
        usleep(2000);
        __atomic_store_n(&words[next], 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &words[next], FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    rounds = atol(argv[1]);
    words[0] = 1;
    pthread_t ids[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&ids[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
    printf("calls %ld\n", calls);
    return 0;
}

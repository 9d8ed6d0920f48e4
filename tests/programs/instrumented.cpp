// Built with -finstrument-functions: recursion, longjmp, exceptions, a hundred threads, and threads
// that end within calls. With an argument the program writes a trace like pvtrace's of its main
// thread: the hooks below then replace the C library's empty ones.
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef TRACE
extern "C" {
#define HOOK __attribute__((no_instrument_function))
static FILE *trace;
static pthread_t first;
HOOK static void note(char kind, void *function) {
    if (!trace) {
        first = pthread_self();
        trace = fopen("trace.txt", "w");
    }
    if (pthread_equal(pthread_self(), first)) {
        fprintf(trace, "%c%p\n", kind, function);
        fflush(trace);
    }
}
HOOK void __cyg_profile_func_enter(void *function, void *) { note('E', function); }
HOOK void __cyg_profile_func_exit(void *function, void *) { note('X', function); }
}
#endif

static volatile unsigned long sum;

static void leaf(int n) { sum += n; }

static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

#ifndef TRACE
static jmp_buf back;

static void jump(int n) {
    leaf(n);
    longjmp(back, 1);
}

// Each round leaves two calls by a jump, then calls another function.
static void jumps(int rounds) {
    for (volatile int round = 0; round < rounds; round++) {
        if (!setjmp(back)) {
            jump(round);
        }
        leaf(round);
    }
}
#endif

static void thrower(int depth) {
    if (depth == 0) {
        throw depth;
    }
    thrower(depth - 1);
}

static void catcher(int rounds) {
    for (int round = 0; round < rounds; round++) {
        try {
            thrower(3);
        } catch (int) {
            leaf(round);
        }
    }
}

static void leave(int n) {
    leaf(n);
    pthread_exit(nullptr);
}

static void *work(void *arg) {
    long n = (long)arg;
    fib(10);
    if (n % 2) {
        leave(n);
    }
    leaf(n);
    return nullptr;
}

int main() {
    pthread_t threads[100];
    for (long n = 0; n < 100; n++) {
        pthread_create(&threads[n], nullptr, work, (void *)n);
    }
    fib(15);
#ifndef TRACE
    jumps(10);
#endif
    catcher(10);
    for (pthread_t thread : threads) {
        pthread_join(thread, nullptr);
    }
    printf("%lu\n", sum);
}

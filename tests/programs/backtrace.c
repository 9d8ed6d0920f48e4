// Prints its own stack as backtrace_symbols(3) does, then waits for the end of standard input.
#include <execinfo.h>
#include <stdio.h>

__attribute__((noinline)) void innermost(void) {
    void *places[16];
    int count = backtrace(places, 16);
    backtrace_symbols_fd(places, count, 1); // innermost
}

__attribute__((noinline)) void middle(void) {
    innermost(); // middle
    puts("after");
}

int main(void) {
    middle(); // main
    fflush(stdout);
    getchar();
    return 0;
}

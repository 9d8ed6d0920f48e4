/* Calls hit(), waits for a signal, and prints a line. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void on(int signal) { (void)signal; }

__attribute__((noinline)) void hit(void) { __asm__ volatile("" ::: "memory"); }

int main(void) {
    signal(SIGUSR1, on);
    hit();
    pause();
    puts("woken");
    return 0;
}

/* A library that is loaded and unloaded. */
long there(long n);
__attribute__((noinline)) long there(long n) { __asm__ volatile("" : "+r"(n)); return 2 * n + 1; }

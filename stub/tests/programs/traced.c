/* Two functions worth tracing. */
#include <stdio.h>
#include <string.h>

int counter;
struct point { int x, y; } global_point = {3, 4};

__attribute__((noinline)) int work(int n, const char *what) {
    int local = n * 2;
    counter += local;
    return counter + (int)strlen(what);
}

__attribute__((noinline)) int leaf(int n) { return n + counter; }

__attribute__((noinline)) void the_end(void) { __asm__ volatile(""); }

int main(void) {
    long total = 0;
    for (int i = 0; i < 10; i++) {
        global_point.x = i;
        total += work(i, "hello");
    }
    for (int i = 0; i < 10; i++) {
        global_point.x = i;
        total += leaf(i);
    }
    the_end();
    printf("total %ld\n", total);
    return 0;
}

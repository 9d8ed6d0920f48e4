/* Functions with frames that are hard to unwind. The live tests stop at every instruction. */
#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP __attribute__((noinline, noclone))

volatile int sink;

KEEP int leaf(int a, int b) { return a * b + 3; }

KEEP int many(int a, int b, int c, int d, int e, int f, int g, int h) {
    return leaf(a, b) + leaf(c, d) * leaf(e, f) - leaf(g, h) + a * b * c * d;
}

KEEP int big_frame(int n) {
    char buffer[70000];
    memset(buffer, n, sizeof buffer);
    return buffer[n * 100] + leaf(n, buffer[3]);
}

KEEP int dynamic(int n) {
    char *p = alloca(n);
    memset(p, 1, n);
    return leaf(p[n / 2], n) + many(1, 2, 3, 4, 5, 6, 7, p[0]);
}

KEEP int shrink_wrapped(int *p, int n) {
    if (!p || n < 1)
        return 0;
    int sum = 0;
    for (int i = 0; i < n; i++) {
        sum += leaf(p[i], i);
        if (sum > 1000)
            return big_frame(sum % 600);
    }
    return sum;
}

KEEP int choose(int a, int b) {
    switch (a) {
    case 0: return leaf(a, b);
    case 1: return b * 3;
    case 2: return many(a, b, 1, 2, 3, 4, 5, 6);
    case 3: return b / 7;
    case 4: return dynamic(b);
    case 5: abort();
    case 6: return choose(b, a);
    default: return -1;
    }
}

KEEP int deep(int n) { return n == 0 ? choose(2, 5) : deep(n - 1) + n; }

KEEP int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

KEEP int sorted(void) {
    int values[4] = {3, 1, 2, 0};
    qsort(values, 4, sizeof values[0], compare);
    return values[2];
}

KEEP int varargs(const char *format, ...) {
    __builtin_va_list ap;
    __builtin_va_start(ap, format);
    int n = __builtin_va_arg(ap, int);
    __builtin_va_end(ap);
    return leaf(n, format[0]);
}

KEEP int tail(int a) { return choose(a, a + 1); }

KEEP double floats(double a, double b, double c) {
    double x = leaf((int)a, 2);
    for (int i = 0; i < 3; i++) {
        a = a * b + c;
        b = leaf(i, 3) + a;
    }
    return a + b + c + x;
}

KEEP void handler(int number) { sink += leaf(number, 2); }

KEEP int interrupted(void) {
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    return sink;
}

int main(int argc, char **argv) {
    int values[3] = {1, 2, 900};
    sink = deep(5) + tail(4) + choose(0, 1) + choose(3, 9) + choose(6, 1);
    sink += shrink_wrapped(0, 1) + shrink_wrapped(values, 3) + sorted();
    sink += varargs("x", 3) + (int)floats(1.5, 2.5, argc) + interrupted();
    return sink == 1234567;
}

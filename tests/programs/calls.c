// Functions that are left in every possible way: at several returns, by jumping to another
// function, by recursion, by longjmp, and never. Prints the arguments and the result of each, if
// there is one.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define API __attribute__((noinline, noclone))

static jmp_buf back;
static volatile long zero;

API long traced_several(long n)
{
    if (n < 0)
        return -1;
    if (n == 0)
        return 100 + atoi("0");
    for (long i = 2; i * i <= n; i++)
        if (n % i == 0)
            return i;
    return n + 0 * atoi("1");
}

API long traced_end_of_jump(long n)
{
    return n * 3 + zero;
}

API long traced_jumps(long n)
{
    zero = 0;
    return traced_end_of_jump(n + 1);
}

API long traced_recursion(long n)
{
    return n <= 1 ? 1 : n + traced_recursion(n - 1);
}

API long traced_switch(long n)
{
    switch (n) {
    case 0: return zero + 11;
    case 1: return atoi("12");
    case 2: return abs((int)zero - 13);
    case 3: return traced_end_of_jump(1);
    case 4: return 15 + 0 * rand();
    case 5: return 16;
    case 6: zero = 0; return 17;
    default: return 18;
    }
}

API long traced_jumper(long n)
{
    if (n > 2)
        longjmp(back, (int)n);
    return n;
}

API long traced_exit(long code)
{
    fflush(stdout);
    exit((int)code);
}

API long traced_compare(long a, long b)
{
    return a < b ? -1 : a > b;
}

static int by_value(const void *a, const void *b)
{
    return (int)traced_compare(*(const int *)a, *(const int *)b);
}

#define SHOW(function, n) printf("%s %ld %ld\n", #function, (long)(n), function(n))

int main(void)
{
    for (long n = -2; n < 8; n++)
        SHOW(traced_several, n);
    for (long n = 0; n < 5; n++)
        SHOW(traced_jumps, n);
    SHOW(traced_recursion, 6);
    for (long n = 0; n < 9; n++)
        SHOW(traced_switch, n);
    for (volatile long n = 0; n < 5; n++)
        if (setjmp(back) == 0)
            SHOW(traced_jumper, n);
    int numbers[] = {5, 2, 9, 1, 7, 3};
    qsort(numbers, 6, sizeof *numbers, by_value);
    return (int)traced_exit(0);
}

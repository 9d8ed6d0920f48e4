// Static, weak, aliased and inlined functions, data, and code without any type.
#include <stdio.h>
#include <stdlib.h>
int counter = 3;
static int hidden_data[8];
static inline __attribute__((always_inline)) int deepest(int n)
{
    counter += n;
    return puts("deepest") + n;
}
static inline __attribute__((always_inline)) int deeper(int n)
{
    int sum = deepest(n);
    return sum * deepest(n + 1);
}
__attribute__((noinline)) static int hidden(int n)
{
    hidden_data[n & 7] = n;
    return deeper(n) + 1;
}
__attribute__((noinline)) int visible(int n)
{
    switch (n) {
    case 0: return hidden(4);
    case 1: return puts("one");
    case 2: return atoi("7");
    case 3: return hidden(counter);
    case 4: return deeper(counter);
    case 5: return 77 + n;
    default: return n;
    }
}
int alias(int n) __attribute__((alias("visible"), weak));
int main(int argc, char **argv)
{
    (void)argv;
    return visible(argc) + alias(argc + 1);
}

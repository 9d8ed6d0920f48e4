/* What the stepped test steps through: own code of all shapes, and much of the C library. */
#include <alloca.h>
#include <ctype.h>
#include <locale.h>
#include <regex.h>
#include <search.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#define KEEP __attribute__((noinline, noclone))

volatile int sink;
static jmp_buf escape;

KEEP int product(int a, int b) { return a * b + 3; }

KEEP int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

KEEP int by_text(const void *a, const void *b) { return strcmp(a, b); }

KEEP int deep(int n) { return n == 0 ? product(2, 5) : deep(n - 1) + n; }

KEEP int tail(int a) { return deep(a + 1); }

KEEP int dynamic(int n) {
    char *p = alloca(n);
    memset(p, 1, n);
    return product(p[n / 2], n);
}

KEEP int big_frame(int n) {
    char buffer[9000];
    memset(buffer, n, sizeof buffer);
    return buffer[n] + product(n, buffer[3]);
}

KEEP int early_exit(const int *p, int n) {
    if (!p || n < 1)
        return 0;
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += product(p[i], i);
    return sum > 10 ? dynamic(sum % 50 + 8) : sum;
}

KEEP int choose(int a, int b) {
    switch (a) {
    case 0: return product(a, b);
    case 1: return b * 3;
    case 2: return tail(b);
    case 3: return b / 7;
    case 4: return dynamic(b + 20);
    case 5: return big_frame(b);
    default: return -1;
    }
}

KEEP int sum(int count, ...) {
    va_list ap;
    va_start(ap, count);
    int total = 0;
    while (count--)
        total += va_arg(ap, int);
    va_end(ap);
    return total;
}

KEEP double floats(double a, double b) {
    for (int i = 0; i < 3; i++)
        a = a * b + product(i, 3);
    return a;
}

KEEP void jump_out(int n) {
    if (n == 0)
        longjmp(escape, 1);
    jump_out(n - 1);
}

KEEP int round_of_library(int round) {
    char text[200], copy[200];
    int numbers[24], found = 5;
    for (int i = 0; i < 24; i++)
        numbers[i] = (i * 7 + round) % 24;
    qsort(numbers, 24, sizeof numbers[0], by_number);
    sink += bsearch(&found, numbers, 24, sizeof numbers[0], by_number) != 0;
    snprintf(text, sizeof text, "%d %s %08lx %.4f %c %lld", round, "word", 0xbeefUL, 3.25 * round, 'x', 1234567890123LL);
    memcpy(copy, text, sizeof text);
    memmove(copy + 3, copy, 120);
    sink += strlen(copy) + (strstr(text, "word") != 0) + (strchr(text, 'x') != 0);
    sink += strtol("-123456", 0, 10) + strtoul("ffee", 0, 16) + (int)strtod("2.71828e3", 0);
    int a = 0;
    char word[20];
    sscanf("17 apples", "%d %19s", &a, word);
    char *heap = malloc(100 + round * 37), *more = calloc(10, 50);
    heap = realloc(heap, 5000);
    strcpy(heap, text);
    for (char *t = strtok(heap, " "); t; t = strtok(0, " "))
        sink += toupper(t[0]);
    free(more);
    free(heap);
    regex_t regex;
    if (regcomp(&regex, "^([a-z]+)[0-9]*(x|yz)$", REG_EXTENDED) == 0) {
        regmatch_t match[3];
        sink += regexec(&regex, "hello42yz", 3, match, 0);
        regfree(&regex);
    }
    FILE *file = fopen("/dev/null", "r+");
    if (file) {
        fprintf(file, "%s %5d\n", text, a);
        sink += fgets(copy, sizeof copy, file) != 0;
        fclose(file);
    }
    time_t when = 1000000000 + round;
    struct tm *tm = gmtime(&when);
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %A", tm);
    void *tree = 0;
    for (int i = 0; i < 12; i++)
        tsearch(&numbers[(i * 5) % 12], &tree, by_number);
    for (int i = 0; i < 12; i++)
        tdelete(&numbers[i], &tree, by_number);
    wchar_t wide[40];
    sink += mbstowcs(wide, "wide words", 40) + wcslen(wide);
    srandom(round);
    sink += random() % 100 + rand() % 100;
    char *names[4] = {"delta", "alpha", "charlie", "bravo"};
    char table[4][8];
    for (int i = 0; i < 4; i++)
        strncpy(table[i], names[i], 8);
    qsort(table, 4, 8, by_text);
    sink += getenv("HOME") != 0;
    return sink;
}

int main(int argc, char **argv) {
    int values[4] = {3, 1, 4, 9};
    setlocale(LC_ALL, "C");
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 7; i++)
            sink += choose(i, round % 5);
        sink += early_exit(values, 4) + early_exit(0, 1) + sum(3, 1, 2, 3) + (int)floats(1.5, 2.5);
        if (setjmp(escape) == 0)
            jump_out(3);
        round_of_library(round);
    }
    return 0;
}

/* Frames of several kinds, for walks over generated stacks. Debian 12 compiled the libraries beside
   this file from it, with
   COMPILER -shared -fPIC -nostdlib -s -O1 -Wl,--unresolved-symbols=ignore-all
       -Wl,-z,noseparate-code -Wl,-z,max-page-size=4096 -Wl,--build-id=0x756e73706f6f6c
   and, for a32 -marm -funwind-tables, for t32 -mthumb -funwind-tables. */
int g(int);
int leaf(int a, int b) { return a * b + 3; }
int many(int a, int b, int c, int d, int e, int f, int n, int h) { return g(a + b) + leaf(c, d) * g(e) - leaf(n, h) + a * b * c * d; }
int dynamic(int n) { volatile char b[n + 40]; b[n] = 1; return n ? dynamic(n - 1) + b[3] : 7; }
int choose(int c) {
    switch (c) {
    case 1: return dynamic(2);
    case 2: return g(9) + 1;
    case 3: return dynamic(c) + g(3);
    case 4: return g(5) * 7;
    case 5: return many(1, 2, 3, 4, 5, 6, 7, 8);
    }
    return g(c) + c;
}
double floats(double a, double b, int n) {
    for (int i = 0; i < n; i++)
        a = a * b + g(i);
    return a + b;
}
int tail(int a) { return a > 3 ? choose(a - 1) : many(a, a, a, a, 1, 2, 3, a); }

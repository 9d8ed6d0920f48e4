// See same_name.c.
extern int total;

static __attribute__((noinline)) int same(int value) {
    for (int i = 0; i < value; i++) // large
        total += i * value;
    return value;
}

int other(int value) {
    return same(value);
}

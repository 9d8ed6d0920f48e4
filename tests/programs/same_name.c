// With same_name_other.c: two functions of one name and of different sizes.
int total;

static __attribute__((noinline)) int same(int value) {
    return value * 3 + total; // small
}

int other(int value);

int main(int count, char **words) {
    (void)words;
    return same(count) + other(count);
}

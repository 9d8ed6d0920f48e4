/* A function that is chosen when the program starts. */
static int one_more(int n) { return n + 1; }
static int two_more(int n) { return n + 2; }
static int (*chooser(void))(int) { return sizeof(void *) == 4 ? one_more : two_more; }
int more(int n) __attribute__((ifunc("chooser")));
int main(int count, char **words)
{
    (void)words;
    return more(count);
}

#include <stdio.h>
int global;
int add(int a, int b) {
    int sum = a + b;
    global += sum;
    return sum;
}
int main(void) {
    int total = 0;
    for (int i = 0; i < 3; i++) {
        total = add(total, i);
    }
    printf("total %d global %d\n", total, global);
    return 0;
}

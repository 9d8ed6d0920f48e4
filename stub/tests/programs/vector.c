/* Known values in every kind of register when it traps. */
#include <stdio.h>
int main(void) {
    float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    long double x = 1.5L;
    long double y;
    __asm__ volatile(
        "vmovups %2, %%ymm3\n\t fldt %3\n\t int3\n\t fstpt %1\n\t vmovups %%ymm3, %0\n\t vzeroupper"
        : "=m"(out), "=m"(y) : "m"(in), "m"(x) : "xmm3", "memory");
    for (int i = 0; i < 8; i++) printf("%g ", out[i]);
    printf("%Lg\n", y);
    return 0;
}

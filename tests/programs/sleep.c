/* Sleeps with known values in every floating-point register of ARM, and in some of AArch64. */
#include <unistd.h>

int main(void)
{
#ifdef __arm__
    __asm__ volatile(
        "vmov.f64 d0, #0.125\n vmov.f64 d1, #1.0\n vmov.f64 d2, #2.0\n vmov.f64 d3, #3.0\n"
        "vmov.f64 d4, #4.0\n vmov.f64 d5, #5.25\n vmov.f64 d6, #6.0\n vmov.f64 d7, #7.0\n"
        "vmov.f64 d8, #8.0\n vmov.f64 d9, #9.0\n vmov.f64 d10, #10.0\n vmov.f64 d11, #11.0\n"
        "vmov.f64 d12, #12.0\n vmov.f64 d13, #13.0\n vmov.f64 d14, #14.0\n vmov.f64 d15, #15.0\n"
#ifdef __ARM_NEON
        "vmov.i32 q8, #0x11\n vmov.i32 q9, #0x2200\n vmov.i32 q10, #0x330000\n vmov.i16 q11, #0x44\n"
        "vmov.i16 q12, #0x5500\n vmov.i8 q13, #0x66\n vmov.i64 q14, #0xff00ff00ff00ff00\n vmov.i32 q15, #0x77\n"
#endif
        ::: "memory");
#endif
#ifdef __aarch64__
    __asm__ volatile(
        "fmov d0, #0.125\n fmov d1, #1.0\n fmov d5, #5.25\n fmov d8, #8.0\n movi v9.4s, #0x22, lsl #8\n"
        "movi v16.2d, #0xff00ff00ff00ff00\n movi v31.16b, #0x77\n"
        ::: "memory");
#endif
    for (;;)
        sleep(60);
}

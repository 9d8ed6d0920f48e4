/* Two threads without a C library: quick to start, and at the same addresses every time. */
#if !defined(__x86_64__)
#error "x86-64 only"
#endif

static volatile long counter;
static char stack[4096] __attribute__((aligned(16), used));

static long call(long number, long a, long b) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
    return result;
}

__attribute__((noinline)) static long work(long n) {
    counter += n;
    return counter;
}

__attribute__((noinline, used)) static void spin(void) {
    for (long n = 0;; n++) {
        work(n);
        if (n % 1000 == 0)
            call(39 /* getpid */, 0, 0);
    }
}

__attribute__((naked)) void _start(void) {
    __asm__("mov $37, %eax\n" /* alarm: a client may have let it go */
            "mov $1, %edi\n"
            "syscall\n"
            "mov $56, %eax\n" /* clone */
            "mov $0x50f00, %edi\n" /* VM FS FILES SIGHAND THREAD SYSVSEM */
            "lea stack+4096(%rip), %rsi\n"
            "xor %edx, %edx\n"
            "xor %r10d, %r10d\n"
            "xor %r8d, %r8d\n"
            "syscall\n"
            "call spin\n");
}

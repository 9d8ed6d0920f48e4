/* Functions whose prologues and epilogues are hard to unwind, without any library, so that a test
   can single-step through all of them. */
#define KEEP __attribute__((noipa))
#define COLD __attribute__((noipa, cold))

typedef int (*function)(int);

volatile int sink;

/* For -fstack-protector-all. */
unsigned long __stack_chk_guard = 0x5eed00ff;
void __stack_chk_fail(void) { for (;;) ; }

#ifdef __arm__
void __aeabi_unwind_cpp_pr0(void) {}
void __aeabi_unwind_cpp_pr1(void) {}
#endif

/* No frame, or only with a frame pointer. */
KEEP int leaf(int a) { return a * 3 + 1; }

/* A frame in a leaf: below the stack pointer on x86-64. */
KEEP int leaf_with_array(int a) {
    volatile int kept[6] = {a, 2, 3, 4, 5, 6};
    return kept[a & 3] + kept[5];
}

/* One register, and all registers that a callee saves. */
KEEP int pushes_one(int a) { return leaf(a) + a; }

KEEP int pushes_all(int a, int b, int c, int d, int e, int f, int g, int h) {
    int x = leaf(a) + leaf(b), y = leaf(c) + leaf(d), z = leaf(e);
    return leaf(x) + leaf(y) * leaf(z) - leaf(f) + a * b * c * d + g * h + x + y + z;
}

/* A tail call, after a frame that is gone by then. */
KEEP int jumps(int a) { return leaf(a + 1); }

KEEP int jumps_with_frame(int a) {
    sink += leaf(a);
    return pushes_one(a + 1);
}

KEEP int jumps_to(function to, int a) { return to(leaf(a)); }

/* The prologue follows the first test. */
KEEP int shrink_wrapped(int *p, int n) {
    if (!p || n < 1)
        return 0;
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += leaf(p[i]) * i;
    return sum;
}

/* Several epilogues. */
KEEP int many_returns(int a) {
    if (leaf(a) == 4)
        return 7;
    sink = a;
    if (leaf(a + 1) == 10)
        return leaf(sink) + 2;
    if (a > 100)
        return pushes_one(a);
    return leaf(a) - leaf(sink);
}

/* A switch, whose table lies between instructions on ARM. */
KEEP int chooses(int a) {
    switch (a) {
    case 0: return leaf(a);
    case 1: return leaf(a) * 3;
    case 2: return pushes_one(a);
    case 3: return a - leaf(7);
    case 4: return jumps(a);
    case 5: return shrink_wrapped(0, a) + leaf(2);
    default: return -1;
    }
}

/* A frame whose size fits into no immediate operand, so that its offset is in a register. */
KEEP int big_frame(int n) {
    volatile char bytes[70004];
    bytes[n] = n;
    bytes[70000] = 1;
    return leaf(bytes[n]) + bytes[70000];
}

KEEP int page_frame(int n) {
    volatile char bytes[5000];
    bytes[n] = n;
    return leaf(bytes[n]);
}

/* A frame of a size that is known only when it runs. */
KEEP int dynamic(int n) {
    volatile char *p = __builtin_alloca(n);
    p[0] = n;
    p[n - 1] = 2;
    return leaf(p[0]) + leaf(p[n - 1]);
}

KEEP int dynamic_in_a_loop(int n) {
    int sum = 0;
    for (int i = 1; i < n; i++) {
        volatile char *p = __builtin_alloca(16 * i);
        p[0] = i;
        sum += leaf(p[0]);
    }
    return sum;
}

/* An aligned frame. */
KEEP int aligned(int n) {
    volatile int __attribute__((aligned(64))) values[16];
    values[n] = n;
    return leaf(values[n]);
}

/* Arguments on the stack, which the callee may push back. */
KEEP int varargs(int n, ...) {
    __builtin_va_list ap;
    int sum = 0;
    __builtin_va_start(ap, n);
    for (int i = 0; i < n; i++)
        sum += leaf(__builtin_va_arg(ap, int));
    __builtin_va_end(ap);
    return sum;
}

KEEP double floats(double a, double b, double c) {
    double x = leaf(2);
    for (int i = 0; i < 2; i++) {
        a = a * b + c;
        b = leaf(i) + a;
    }
    return a + b + c + x;
}

KEEP int recursive(int n) { return n == 0 ? chooses(2) : recursive(n - 1) + n; }

COLD int rare(int a) { return pushes_one(a) + 1; }

KEEP int has_cold_part(int a) {
    if (__builtin_expect(a > 3, 0)) {
        sink = rare(a);
        return rare(sink) + leaf(a);
    }
    return leaf(a);
}

int whole(void) {
    int values[3] = {1, 2, 3};
    int sum = leaf(1) + leaf_with_array(2) + pushes_one(3);
    sum += pushes_all(1, 2, 3, 4, 5, 6, 7, 8) + jumps(1) + jumps_with_frame(2);
    sum += jumps_to(leaf, 3) + jumps_to(pushes_one, 3);
    sum += shrink_wrapped(0, 1) + shrink_wrapped(values, 3);
    sum += many_returns(1) + many_returns(2) + many_returns(3) + many_returns(200);
    for (int i = 0; i < 7; i++)
        sum += chooses(i);
    sum += big_frame(3) + page_frame(4) + dynamic(40) + dynamic_in_a_loop(4) + aligned(5);
    sum += varargs(3, 1, 2, 3) + (int)floats(1.5, 2.5, 3.5) + recursive(3);
    sum += has_cold_part(1) + has_cold_part(9);
    return sum & 63;
}

#define START(text) __asm__(".globl _start\n.type _start, %function\n_start:\n" text)

#if defined(__x86_64__)
START("xor %ebp, %ebp\n call whole\n mov %eax, %edi\n mov $60, %eax\n syscall\n ud2\n");
#elif defined(__aarch64__)
START("mov x29, #0\n mov x30, #0\n bl whole\n mov x8, #93\n svc #0\n udf #0\n");
#elif defined(__thumb__)
__asm__(".thumb_func\n");
START("mov r11, #0\n bl whole\n mov r7, #1\n svc #0\n udf #0\n");
#else
START("mov r11, #0\n bl whole\n mov r7, #1\n svc #0\n udf #0\n");
#endif

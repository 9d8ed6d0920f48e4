/* The instructions with which functions begin, in a row, for a test that executes each in two ways.
 * `last` follows them. */
#include <stdio.h>

unsigned long prologue(unsigned long);

#ifdef __x86_64__
__asm__(".text\n.globl prologue, last\n.type prologue, @function\n"
        "prologue:\n"
        "endbr64\n"
        "push %rbp\n"
        "mov %rsp, %rbp\n"
        "push %r15\n"
        "push %r14\n"
        "push %r13\n"
        "push %r12\n"
        "push %rbx\n"
        "push %rsp\n"
        "mov %rdi, %r12\n"
        "mov %r12, %r15\n"
        "mov %r15, %rax\n"
        "mov %rax, %rdx\n"
        "mov $0x89abcdef, %ecx\n"
        "mov $0xfffffffe, %r11d\n"
        "mov %rcx, %rbx\n"
        "mov %r11, %r9\n"
        "push %r8\n"
        "sub $0x18, %rsp\n"
        "xor %esi, %esi\n"
        "mov %ebx, %r8d\n"
        "mov 8(%rsp), %r10\n"
        "last:\n"
        "add $0x28, %rsp\n"
        "pop %rbx\npop %r12\npop %r13\npop %r14\npop %r15\npop %rbp\n"
        "ret\n");
#endif

int main(void)
{
    printf("%lu\n", prologue(7));
    return 0;
}

/* Creates a thread, and burns half a second of processor time in it. Both go through code made at
 * run time, which keeps a frame pointer unless the program has an argument. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef void (*call_t)(void (*function)(void *), void *argument);

#ifdef __aarch64__
/* stp x29, x30, [sp, #-16]!; mov x29, sp; mov x2, x0; mov x0, x1; blr x2; ldp x29, x30, [sp], #16;
 * ret */
static const unsigned kept[] = {0xa9bf7bfd, 0x910003fd, 0xaa0003e2, 0xaa0103e0,
                                0xd63f0040, 0xa8c17bfd, 0xd65f03c0};
/* str x30, [sp, #-16]!; mov x2, x0; mov x0, x1; blr x2; ldr x30, [sp], #16; ret */
static const unsigned omitted[] = {0xf81f0ffe, 0xaa0003e2, 0xaa0103e0,
                                   0xd63f0040, 0xf84107fe, 0xd65f03c0};
#else
/* push %rbp; mov %rsp,%rbp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; pop %rbp; ret */
static const unsigned char kept[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48,
                                     0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
/* sub $24,%rsp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; add $24,%rsp; ret */
static const unsigned char omitted[] = {0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0xf8, 0x48, 0x89,
                                        0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x18, 0xc3};
#endif

static call_t call;
static volatile long sink;

__attribute__((noinline)) static void burn(void *argument)
{
    (void)argument;
    struct timespec time;
    do {
        for (int i = 0; i < 100000; i++)
            sink += i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    } while (time.tv_sec == 0 && time.tv_nsec < 500000000);
}

__attribute__((noinline)) static void calls(void (*function)(void *), void *argument)
{
    call(function, argument);
    sink++;
}

static void *run(void *argument)
{
    calls(burn, argument);
    sink++;
    return NULL;
}

static void start(void *thread)
{
    pthread_create(thread, NULL, run, NULL);
    sink++;
}

int main(int argc, char **argv)
{
    (void)argv;
    size_t size = sizeof kept > sizeof omitted ? sizeof kept : sizeof omitted;
    void *code = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (code == MAP_FAILED)
        return 1;
    if (argc > 1)
        memcpy(code, omitted, sizeof omitted);
    else
        memcpy(code, kept, sizeof kept);
    __builtin___clear_cache(code, (char *)code + size);
    call = (call_t)code;
    pthread_t thread;
    calls(start, &thread);
    return pthread_join(thread, NULL);
}

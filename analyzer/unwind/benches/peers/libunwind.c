// Measures libunwind on the same stacks. The benchmark `peers` runs it:
//
//   libunwind hot OUT          builds a stack of 30 frames, unwinds it repeatedly, and saves it
//   libunwind cold LIST OUT    one step from each address in LIST ("PATH SVMA" on each line)
//
// It uses local unwinding (UNW_LOCAL_ONLY), which is libunwind's fastest mode.
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <libunwind.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FRAMES = 64, ROUNDS = 40, STACKS = 200, STACK_BYTES = 1 << 20 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int unwind(unw_context_t *context, uint64_t *pcs) {
    unw_cursor_t cursor;
    unw_word_t pc;
    int count = 0;
    unw_init_local(&cursor, context);
    do {
        unw_get_reg(&cursor, UNW_REG_IP, &pc);
        pcs[count++] = pc;
    } while (count < FRAMES && unw_step(&cursor) > 0);
    return count;
}

static double per_frame(unw_context_t *context) {
    uint64_t pcs[FRAMES];
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        int frames = 0;
        for (int stack = 0; stack < STACKS; stack++)
            frames += unwind(context, pcs);
        double took = (now() - start) / frames;
        if (took < best)
            best = took;
    }
    return best;
}

static int print_module(struct dl_phdr_info *info, size_t size, void *out) {
    const char *name = info->dlpi_name;
    if (name[0] != 0 && name[0] != '/')
        return 0; // the vdso
    fprintf(out, "module %lx %s\n", (unsigned long)info->dlpi_addr, name[0] ? name : "/proc/self/exe");
    return 0;
}

static char *stack_top;

__attribute__((noinline)) static int bottom(const char *path) {
    unw_context_t context;
    uint64_t pcs[FRAMES];
    unw_getcontext(&context);
    greg_t *registers = context.uc_mcontext.gregs;
    FILE *out = fopen(path, "w");
    if (out == NULL)
        return 1;
    dl_iterate_phdr(print_module, out);
    uint64_t sp = registers[REG_RSP];
    fprintf(out, "register rip %llx\nregister rsp %lx\nregister rbp %llx\n", registers[REG_RIP], sp, registers[REG_RBP]);
    unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_NONE);
    fprintf(out, "uncached %f\n", per_frame(&context));
    unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_PER_THREAD);
    fprintf(out, "cached %f\n", per_frame(&context));
    int count = unwind(&context, pcs);
    for (int i = 0; i < count; i++)
        fprintf(out, "frame %lx\n", pcs[i]);
    fprintf(out, "memory %lx ", sp);
    for (char *at = (char *)sp; at < stack_top; at++)
        fprintf(out, "%02x", (unsigned char)*at);
    fprintf(out, "\n");
    return fclose(out);
}

// A chain of 27 functions of different shapes: no, one or all registers saved; small and large
// locals; a frame pointer.
static volatile int zero;

#define PLAIN(name, next)                                                                          \
    __attribute__((noinline)) static int name(const char *path) { return next(path) + zero; }

#define SAVING(name, next)                                                                         \
    __attribute__((noinline)) static int name(const char *path) {                                  \
        volatile char room[300];                                                                   \
        room[0] = 1;                                                                               \
        int a = zero, b = zero, c = zero, d = zero;                                                \
        return next(path) + room[0] - 1 + a * b + c * d;                                           \
    }

#define VARIABLE(name, next)                                                                       \
    __attribute__((noinline)) static int name(const char *path) {                                  \
        volatile char *room = __builtin_alloca(zero + 32);                                         \
        room[0] = 1;                                                                               \
        return next(path) + room[0] - 1 + zero;                                                    \
    }

#define THREE(a, b, c, next) VARIABLE(c, next) SAVING(b, c) PLAIN(a, b)

THREE(f24, f25, f26, bottom)
THREE(f21, f22, f23, f24)
THREE(f18, f19, f20, f21)
THREE(f15, f16, f17, f18)
THREE(f12, f13, f14, f15)
THREE(f9, f10, f11, f12)
THREE(f6, f7, f8, f9)
THREE(f3, f4, f5, f6)
THREE(f0, f1, f2, f3)

static uint64_t bias_of(const char *path) {
    static char last[4096];
    static uint64_t bias;
    if (strcmp(path, last) != 0) {
        void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        struct link_map *map;
        if (handle == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
            fprintf(stderr, "%s\n", dlerror());
            exit(1);
        }
        bias = map->l_addr;
        snprintf(last, sizeof last, "%s", path);
    }
    return bias;
}

static int step(unw_context_t *context, uint64_t pc, uint64_t sp, uint64_t *cfa) {
    unw_cursor_t cursor;
    unw_word_t value = 0;
    context->uc_mcontext.gregs[REG_RIP] = pc;
    context->uc_mcontext.gregs[REG_RSP] = sp;
    context->uc_mcontext.gregs[REG_RBP] = sp + 1024;
    unw_init_local(&cursor, context);
    int result = unw_step(&cursor);
    unw_get_reg(&cursor, UNW_REG_SP, &value);
    *cfa = value;
    return result;
}

static int cold(const char *list, const char *path) {
    FILE *in = fopen(list, "r");
    FILE *out = fopen(path, "w");
    static char name[4096];
    size_t count = 0, room = 1 << 20;
    unsigned long svma;
    uint64_t *pcs = malloc(room * sizeof *pcs), *cfas = malloc(room * sizeof *cfas);
    uint64_t *stack = aligned_alloc(4096, STACK_BYTES);
    if (in == NULL || out == NULL || pcs == NULL || cfas == NULL || stack == NULL)
        return 1;
    while (count < room && fscanf(in, "%4095s %lx", name, &svma) == 2)
        pcs[count++] = bias_of(name) + svma;
    // Every word is a return address into main's caller.
    for (int i = 0; i < STACK_BYTES / 8; i++)
        stack[i] = (uint64_t)dlsym(RTLD_DEFAULT, "qsort") + 16;
    uint64_t sp = (uint64_t)stack + (64 << 10);
    unw_context_t context;
    unw_getcontext(&context);
    unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_NONE);
    double best = 1e18;
    for (int round = 0; round < 2; round++) {
        double start = now();
        for (size_t i = 0; i < count; i++)
            step(&context, pcs[i], sp, &cfas[i]);
        double took = (now() - start) / count;
        if (took < best)
            best = took;
    }
    fprintf(out, "uncached %f\n", best);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "cfa %lx\n", cfas[i] - sp);
    return fclose(out);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "cold") == 0)
        return cold(argv[2], argv[3]);
    if (argc != 3)
        return 2;
    // The environment lies above the part of the stack that holds the frames.
    stack_top = (char *)argv;
    return f0(argv[2]);
}

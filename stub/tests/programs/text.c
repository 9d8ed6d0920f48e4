/* Text that changes. 'm': changes an instruction of a function, first without its first byte and
 * then all of it. 'u': loads and unloads the library named by the second argument, and puts data in
 * its place. Calls look() before each change; `place` is the function's address. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

void *place;
static int bad;

__attribute__((noinline)) void look(long stage) { __asm__ volatile("" : : "r"(stage) : "memory"); }

#if defined(__x86_64__)
static size_t loads(unsigned char *at, uint32_t value) { /* mov eax, value; ret */
    *at++ = 0xb8; memcpy(at, &value, 4); at[4] = 0xc3; return 6;
}
static size_t adds(unsigned char *at, uint32_t value) { /* xor eax, eax; add eax, value; ret */
    *at++ = 0x31; *at++ = 0xc0; *at++ = 0x05; memcpy(at, &value, 4); at[4] = 0xc3; return 8;
}
enum { BEHIND = 1 };

static void changed(void) {
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint32_t (*function)(void) = (uint32_t (*)(void))code;
    place = code;
    loads(code, 7);
    look(0);
    for (uint32_t value = 1; value <= 100; value++) {
        unsigned char new[16];
        size_t length = loads(new, value);
        memcpy(code + BEHIND, new + BEHIND, length - BEHIND);
        if (function() != value) bad++;
    }
    look(1);
    for (uint32_t value = 1; value <= 100; value++) {
        unsigned char new[16];
        size_t length = value % 2 ? adds(new, value) : loads(new, value);
        memcpy(code, new, length);
        if (function() != value) bad++;
    }
    look(2);
    for (int i = 0; i < 100; i++) if (function() != 100) bad++;
    look(3);
}
#else
static void changed(void) { bad = 1; } /* Not implemented for this architecture. */
#endif

static void unloaded(const char *path) {
    for (int round = 0; round < 20; round++) {
        void *library = dlopen(path, RTLD_NOW);
        long (*there)(long) = library ? (long (*)(long))dlsym(library, "there") : NULL;
        if (!there) { bad++; return; }
        place = (void *)there;
        look(0);
        for (int i = 0; i < 10; i++) if (there(20) != 41) bad++;
        char *base = (char *)((uintptr_t)place & ~(uintptr_t)4095);
        dlclose(library);
        look(1);
        /* Like a debugging allocator: every byte looks like a trap, or none does. */
        int fill = round % 2 ? 0xcc : 0x5a;
        size_t size = 4096;
        unsigned char *data = mmap(base, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (data == MAP_FAILED) { perror("mmap"); bad++; return; }
        memset(data, fill, size);
        look(2);
        for (size_t i = 0; i < size; i++) if (data[i] != fill) bad++;
        munmap(data, size);
    }
    look(3);
}

int main(int argc, char **argv) {
    if (argc > 2) unloaded(argv[2]); else changed();
    printf("bad %d\n", bad);
    return bad != 0;
}

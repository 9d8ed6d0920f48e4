/* Unwinds snapshots with libunwind's remote interface. Standard input, repeated:
 *
 *   module BIAS PATH            hexadecimal without 0x; valid for all later snapshots
 *   register NAME VALUE
 *   memory ADDRESS LENGTH       LENGTH bytes follow the end of the line
 *   unwind                      prints "PC PC ...\n"; forgets registers and memory
 *
 * Other memory is read from the modules' files. */
#include <elf.h>
#include <fcntl.h>
#include <libunwind-x86_64.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

extern int _Ux86_64_dwarf_search_unwind_table(unw_addr_space_t, unw_word_t, unw_dyn_info_t *, unw_proc_info_t *, int, void *);

enum { MODULES = 512, FRAMES = 4096 };

static struct module {
    uint64_t bias;
    const unsigned char *bytes;
    size_t size;
} modules[MODULES];
static int module_count;

static const char *const names[] = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8",
                                    "r9",  "r10", "r11", "r12", "r13", "r14", "r15", "rip"};
static uint64_t registers[17];
static uint64_t stack_base, stack_size;
static unsigned char *stack;

static const Elf64_Phdr *headers(const struct module *module, int *count) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)module->bytes;
    *count = header->e_phnum;
    return (const Elf64_Phdr *)(module->bytes + header->e_phoff);
}

/* The segment and the module that contain an address. */
static const Elf64_Phdr *segment_of(uint64_t address, const struct module **found) {
    for (int i = 0; i < module_count; i++) {
        int count;
        const Elf64_Phdr *segments = headers(&modules[i], &count);
        for (int n = 0; n < count; n++) {
            const Elf64_Phdr *segment = &segments[n];
            if (segment->p_type == PT_LOAD && address - modules[i].bias - segment->p_vaddr < segment->p_filesz) {
                *found = &modules[i];
                return segment;
            }
        }
    }
    return NULL;
}

static const unsigned char *in_file(uint64_t address, size_t size) {
    const struct module *module;
    const Elf64_Phdr *segment = segment_of(address, &module);
    if (segment == NULL)
        return NULL;
    uint64_t at = address - module->bias - segment->p_vaddr;
    if (at + size > segment->p_filesz || segment->p_offset + at + size > module->size)
        return NULL;
    return module->bytes + segment->p_offset + at;
}

static int find_proc_info(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t *info, int need, void *arg) {
    const struct module *module;
    const Elf64_Phdr *text = segment_of(ip, &module);
    if (text == NULL)
        return -UNW_ENOINFO;
    int count;
    const Elf64_Phdr *segments = headers(module, &count);
    for (int n = 0; n < count; n++) {
        if (segments[n].p_type != PT_GNU_EH_FRAME)
            continue;
        uint64_t header = module->bias + segments[n].p_vaddr;
        const unsigned char *bytes = in_file(header, 12);
        /* version 1; 4-byte count; a table of 4-byte offsets from the header */
        if (bytes == NULL || bytes[0] != 1 || bytes[2] != 0x03 || bytes[3] != 0x3b)
            return -UNW_ENOINFO;
        uint32_t fdes;
        memcpy(&fdes, bytes + 8, 4);
        unw_dyn_info_t table = {0};
        table.format = UNW_INFO_FORMAT_REMOTE_TABLE;
        table.start_ip = module->bias + text->p_vaddr;
        table.end_ip = table.start_ip + text->p_memsz;
        table.u.rti.segbase = header;
        table.u.rti.table_data = header + 12;
        table.u.rti.table_len = (uint64_t)fdes * 8 / sizeof(unw_word_t);
        return _Ux86_64_dwarf_search_unwind_table(space, ip, &table, info, need, arg);
    }
    return -UNW_ENOINFO;
}

static void put_unwind_info(unw_addr_space_t space, unw_proc_info_t *info, void *arg) {}

static int get_dyn_info_list_addr(unw_addr_space_t space, unw_word_t *list, void *arg) { return -UNW_ENOINFO; }

static int access_mem(unw_addr_space_t space, unw_word_t address, unw_word_t *value, int write, void *arg) {
    if (write)
        return -UNW_EINVAL;
    const unsigned char *from = NULL;
    if (address >= stack_base && address - stack_base + 8 <= stack_size)
        from = stack + (address - stack_base);
    else
        from = in_file(address, 8);
    if (from == NULL)
        return -UNW_EINVAL;
    memcpy(value, from, 8);
    return 0;
}

static int access_reg(unw_addr_space_t space, unw_regnum_t number, unw_word_t *value, int write, void *arg) {
    if (write || number < 0 || number > 16)
        return -UNW_EBADREG;
    *value = registers[number];
    return 0;
}

static int access_fpreg(unw_addr_space_t space, unw_regnum_t number, unw_fpreg_t *value, int write, void *arg) {
    return -UNW_EBADREG;
}

static int resume(unw_addr_space_t space, unw_cursor_t *cursor, void *arg) { return -UNW_EINVAL; }

static int get_proc_name(unw_addr_space_t space, unw_word_t ip, char *name, size_t size, unw_word_t *offset, void *arg) {
    return -UNW_ENOINFO;
}

static void add_module(uint64_t bias, const char *path) {
    struct stat status;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &status) != 0 || module_count == MODULES) {
        perror(path);
        exit(1);
    }
    void *bytes = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    modules[module_count++] = (struct module){bias, bytes, status.st_size};
}

static void unwind(unw_addr_space_t space) {
    unw_cursor_t cursor;
    unw_word_t pc;
    int count = 0;
    if (unw_init_remote(&cursor, space, NULL) == 0) {
        do {
            unw_get_reg(&cursor, UNW_REG_IP, &pc);
            /* libunwind steps to 0 after the outermost frame. */
            if (pc == 0)
                break;
            printf("%lx ", pc);
        } while (++count < FRAMES && unw_step(&cursor) > 0);
    }
    printf("\n");
    fflush(stdout);
}

int main(void) {
    static unw_accessors_t accessors = {
        find_proc_info, put_unwind_info, get_dyn_info_list_addr, access_mem, access_reg, access_fpreg, resume, get_proc_name,
    };
    unw_addr_space_t space = unw_create_addr_space(&accessors, 0);
    unw_set_caching_policy(space, UNW_CACHE_NONE);
    char line[4200], word[4096];
    uint64_t number;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "module %lx %4095s", &number, word) == 2) {
            add_module(number, word);
        } else if (sscanf(line, "register %15s %lx", word, &number) == 2) {
            for (int i = 0; i < 17; i++)
                if (strcmp(names[i], word) == 0)
                    registers[i] = number;
        } else if (sscanf(line, "memory %lx %lx", &stack_base, &stack_size) == 2) {
            stack = realloc(stack, stack_size + 1);
            if (stack == NULL || fread(stack, 1, stack_size, stdin) != stack_size)
                return 1;
        } else if (strcmp(line, "unwind\n") == 0) {
            unwind(space);
            stack_size = 0;
        } else {
            fprintf(stderr, "not understood: %s", line);
            return 1;
        }
    }
    return 0;
}

/* Makes the kernel sample user registers and 2 KiB of stack at an instruction of a program, with a
 * uprobe, while the program runs. Prints the number of samples on standard error. The buffer is
 * overwritten without being read.
 *
 *   uprobe FILE OFFSET PROGRAM ARGUMENT... */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 4) return 2;
    int type = -1;
    FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
    if (!file || fscanf(file, "%d", &type) != 1) { perror("no uprobes: /sys/bus/event_source/devices/uprobe/type"); return 1; }
    int gate[2];
    if (pipe(gate)) return 1;
    pid_t child = fork();
    if (child == 0) {
        char go;
        close(gate[1]);
        if (read(gate[0], &go, 1) != 1) _exit(1);
        execv(argv[3], argv + 3);
        _exit(127);
    }
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = type;
    attr.uprobe_path = (unsigned long)argv[1];
    attr.probe_offset = strtoul(argv[2], NULL, 0);
    attr.sample_period = 1;
    attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    attr.sample_regs_user = 0xff0fff; /* all of x86-64 but the segments */
    attr.sample_stack_user = 2048;
    attr.disabled = 1;
    attr.enable_on_exec = 1;
    attr.write_backward = 1;
    int event = syscall(SYS_perf_event_open, &attr, child, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (event < 0) { perror("perf_event_open with a uprobe"); return 1; }
    if (mmap(NULL, 4096 * 257, PROT_READ, MAP_SHARED, event, 0) == MAP_FAILED) { perror("mmap"); return 1; }
    if (write(gate[1], "g", 1) != 1) return 1;
    int status = 0;
    waitpid(child, &status, 0);
    unsigned long long count = 0;
    if (read(event, &count, sizeof count) != sizeof count) return 1;
    fprintf(stderr, "samples %llu\n", count);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

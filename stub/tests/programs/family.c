/* Creates a child with fork or vfork. The child ends with 3, and the parent prints that. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void in_child(void) { __asm__ volatile(""); }
static void in_parent(int status) { printf("child %d\n", WEXITSTATUS(status)); }

int main(int argc, char **argv) {
    int status = 0;
    pid_t child = argc > 1 && !strcmp(argv[1], "vfork") ? vfork() : fork();
    if (child == 0) {
        in_child();
        _exit(3);
    }
    waitpid(child, &status, 0);
    in_parent(status);
    return 0;
}

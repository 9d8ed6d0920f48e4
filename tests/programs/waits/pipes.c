/* The parent waits for the end of its child, which waits until the parent reads from a full pipe.
 * A thread waits for the child to write. */
#include "say.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static int full[2], empty[2];

static void *reads(void *none)
{
    char byte;
    return read(empty[0], &byte, 1) == 1 ? none : NULL;
}

int main(void)
{
    static const char bytes[4096];
    if (pipe(full) != 0 || pipe(empty) != 0)
        return 2;
    int child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(full[0]);
        close(empty[0]);
        while (write(full[1], bytes, sizeof bytes) == sizeof bytes)
            ;
        return 1;
    }
    close(full[1]);
    close(empty[1]);
    start(reads, NULL);
    dprintf(1, "ready\n");
    waitpid(child, NULL, 0);
    return 0;
}

/* Two processes wait for each other's lock of a file. The files are the arguments. */
#include "say.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <signal.h>

int main(int count, char **paths)
{
    int held[2], go[2];
    char byte;
    if (count != 3 || pipe(held) != 0 || pipe(go) != 0)
        return 2;
    int parent = getpid(), child = fork();
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    int own = open(paths[child == 0 ? 1 : 2], O_RDWR);
    int other = open(paths[child == 0 ? 2 : 1], O_RDWR);
    flock(own, LOCK_EX);
    if (child == 0) {
        (void)!write(held[1], "", 1);
        (void)!read(go[0], &byte, 1);
    } else {
        (void)!read(held[0], &byte, 1);
        (void)!write(go[1], "", 1);
        dprintf(1, "finding deadlock inferred %d %d\nready\n", parent, child);
    }
    flock(other, LOCK_EX);
    return 0;
}

/* Writes more to a filter than both pipes hold before it reads, so that both wait for each other.
 * Prints a line if the write returns. */
#include "say.h"
#include <signal.h>
#include <sys/prctl.h>

int main(void)
{
    static const char bytes[1 << 20];
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0)
        return 2;
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(to[0], 0);
        dup2(from[1], 1);
        for (int descriptor = 3; descriptor < 7; descriptor++)
            close(descriptor);
        execlp("cat", "cat", NULL);
        return 2;
    }
    close(to[0]);
    close(from[1]);
    dprintf(2, "written %zd\n", write(to[1], bytes, sizeof bytes));
    return 0;
}

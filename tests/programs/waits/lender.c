/* A thread that waits in vfork(2) until its child has gone, on which the child waits for standard input to end: nothing can stop that thread
 * meanwhile. It exits with 3. */
#include "say.h"

int main(void)
{
    pid_t child = vfork();
    if (child == 0) {
        char byte;
        dprintf(1, "ready\n");
        while (read(0, &byte, 1) > 0)
            continue;
        _exit(0);
    }
    return child > 0 ? 3 : 2;
}

/* A thread that waits in vfork(2) until its child exits. The child waits for the end of standard
 * input, so the thread cannot be stopped meanwhile. It exits with 3. */
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

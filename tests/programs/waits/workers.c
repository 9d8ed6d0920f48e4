/* Idle workers wait at pipes. Their parent writes to one after the other. */
#include <unistd.h>

#define WORKERS 70

int main(void)
{
    int to[WORKERS];
    for (int worker = 0; worker < WORKERS; worker++) {
        int ends[2];
        if (pipe(ends) != 0)
            return 2;
        if (fork() == 0) {
            close(ends[1]);
            for (int other = 0; other < worker; other++)
                close(to[other]);
            char byte;
            while (read(ends[0], &byte, 1) == 1)
                continue;
            return 0;
        }
        close(ends[0]);
        to[worker] = ends[1];
    }
    for (int next = 0;; next = (next + 1) % WORKERS) {
        usleep(300000);
        if (write(to[next], "", 1) != 1)
            return 3;
    }
}

/* Idle workers wait at pipes. Their parent writes to one after the other. With -DHANG it writes to a
 * child that sends all back, reads nothing, and so waits forever. */
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
#ifdef HANG
    static char bytes[1 << 20];
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0)
        return 2;
    if (fork() == 0) {
        close(down[1]);
        close(up[0]);
        for (int worker = 0; worker < WORKERS; worker++)
            close(to[worker]);
        ssize_t size;
        while ((size = read(down[0], bytes, 4096)) > 0 && write(up[1], bytes, size) == size)
            continue;
        return 0;
    }
    close(down[0]);
    close(up[1]);
    return write(down[1], bytes, sizeof bytes) != sizeof bytes;
#endif
    for (int next = 0;; next = (next + 1) % WORKERS) {
        usleep(300000);
        if (write(to[next], "", 1) != 1)
            return 3;
    }
}

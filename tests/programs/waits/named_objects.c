/* Threads wait for a named semaphore, for an eventfd, and for the locks of a file that a child
 * holds. The file is the first argument. */
#include "say.h"
#include <fcntl.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/wait.h>

static const char *path;
static sem_t *named;
static int event;

static void *wait_named(void *argument)
{
    sem_wait(named);
    return argument;
}

static void *wait_event(void *argument)
{
    uint64_t value;
    (void)!read(event, &value, sizeof(value));
    return argument;
}

static void *wait_flock(void *argument)
{
    flock(open(path, O_RDWR), LOCK_EX);
    return argument;
}

static void *wait_record(void *argument)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    fcntl(open(path, O_RDWR), F_SETLKW, &lock);
    return argument;
}

int main(int count, char **arguments)
{
    char name[32];
    int held[2], alive[2];
    char byte;
    if (count != 2 || pipe(held) != 0 || pipe(alive) != 0)
        return 2;
    path = arguments[1];
    snprintf(name, sizeof(name), "/unspool-%d", getpid());
    named = sem_open(name, O_CREAT, 0600, 0);
    event = eventfd(0, 0);
    if (fork() == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int file = open(path, O_RDWR);
        flock(file, LOCK_EX);
        fcntl(file, F_SETLKW, &lock);
        (void)!write(held[1], "", 1);
        /* Until its parent is gone. */
        close(alive[1]);
        (void)!read(alive[0], &byte, 1);
        sem_unlink(name);
        _exit(0);
    }
    (void)!read(held[0], &byte, 1);
    start(wait_named, NULL);
    start(wait_event, NULL);
    start(wait_flock, NULL);
    start(wait_record, NULL);
    dprintf(1, "ready\n");
    wait(NULL);
    return 0;
}

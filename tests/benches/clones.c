/* The minimum cost of following threads by ptrace: starts a program, stops at the creation of each
 * thread and at nothing else, and resumes it at once.
 *
 *   clones PROGRAM ARGUMENTS... */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    if (count < 2)
        return 2;
    pid_t first = fork();
    if (first == 0) {
        raise(SIGSTOP);
        execv(arguments[1], arguments + 1);
        _exit(127);
    }
    int status;
    if (waitpid(first, &status, WUNTRACED) != first || ptrace(PTRACE_SEIZE, first, 0, PTRACE_O_TRACECLONE))
        return 1;
    kill(first, SIGCONT);
    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0)
            return 1;
        if (!WIFSTOPPED(status)) {
            if (thread == first)
                return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
            continue;
        }
        int signal = status >> 16 ? 0 : WSTOPSIG(status);
        ptrace(PTRACE_CONT, thread, 0, signal == SIGTRAP ? 0 : signal);
    }
}

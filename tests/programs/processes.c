/* Starts other processes in every way, without recording them. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(void) {
  char *arguments[] = {"true", NULL};
  char line[16];
  pid_t child;
  int failed = system("exit 0");
  FILE *pipe = popen("echo one", "r");
  failed |= !pipe || !fgets(line, sizeof line, pipe) || pclose(pipe);
  failed |= posix_spawnp(&child, "true", NULL, NULL, arguments, environ);
  failed |= waitpid(child, NULL, 0) != child;
  child = fork();
  if (child == 0) {
    execlp("sleep", "sleep", "0.3", (char *)NULL);
    _exit(127);
  }
  failed |= waitpid(child, NULL, 0) != child;
  child = fork();
  if (child == 0)
    _exit(0);
  failed |= waitpid(child, NULL, 0) != child;
  return failed;
}

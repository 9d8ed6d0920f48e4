/* Sleeps in two threads. Its filter of system calls kills the process for restart_syscall. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

static void *rest(void *argument) {
  struct timespec nap = {0, 100000000};
  for (int i = 0; i < 30; i++)
    nanosleep(&nap, NULL);
  return argument;
}

int main(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  pthread_t thread;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
    return 2;
  puts("ready");
  fflush(stdout);
  pthread_create(&thread, NULL, rest, NULL);
  rest(NULL);
  pthread_join(thread, NULL);
  return 0;
}

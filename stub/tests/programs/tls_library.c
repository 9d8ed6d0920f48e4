/* A thread-local variable in a library that is loaded while the program runs. */
_Thread_local int mine = 7;
int *place(void) { return &mine; }

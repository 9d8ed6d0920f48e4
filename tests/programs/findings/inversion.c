/* Two mutexes, taken in both orders by two threads that never run at the same time: nothing hangs, today. */
#include "told.h"

MUTEX(accounts);
MUTEX(journal);

static void *deposit(void *argument)
{
    TAKE(accounts);
    TAKE(journal);
    GIVE(journal);
    GIVE(accounts);
    return argument;
}

static void *audit(void *argument)
{
    TAKE(journal);
    TAKE(accounts);
    GIVE(accounts);
    GIVE(journal);
    return argument;
}

int main(void)
{
    for (int round = 0; round < 3; round++) {
        run(deposit, NULL);
        run(audit, NULL);
    }
    TELL(accounts);
    TELL(journal);
    return 0;
}

/* Two mutexes taken in both orders by two threads that could meet and never do: this run does not
 * hang. */
#include "told.h"

MUTEX(accounts);
MUTEX(journal);

static void *deposit(void *argument)
{
    for (int round = 0; round < 3; round++) {
        await_turn(2 * round);
        TAKE(accounts);
        TAKE(journal);
        GIVE(journal);
        GIVE(accounts);
        end_turn();
    }
    return argument;
}

static void *audit(void *argument)
{
    for (int round = 0; round < 3; round++) {
        await_turn(2 * round + 1);
        TAKE(journal);
        TAKE(accounts);
        GIVE(accounts);
        GIVE(journal);
        end_turn();
    }
    return argument;
}

int main(void)
{
    pthread_t one = start(deposit, NULL), other = start(audit, NULL);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
    TELL(accounts);
    TELL(journal);
    return 0;
}

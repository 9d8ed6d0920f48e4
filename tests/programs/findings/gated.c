/* Two mutexes in both orders, but only by holders of a third one: the program cannot hang, and
 * there is no finding. */
#include "told.h"

MUTEX(office);
MUTEX(accounts);
MUTEX(journal);

static void *deposit(void *argument)
{
    TAKE(office);
    TAKE(accounts);
    TAKE(journal);
    GIVE(journal);
    GIVE(accounts);
    GIVE(office);
    return argument;
}

static void *audit(void *argument)
{
    TAKE(office);
    TAKE(journal);
    TAKE(accounts);
    GIVE(accounts);
    GIVE(journal);
    GIVE(office);
    return argument;
}

int main(void)
{
    run(deposit, NULL);
    run(audit, NULL);
    TELL(office);
    TELL(accounts);
    TELL(journal);
    return 0;
}

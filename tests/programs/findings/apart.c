/* Two mutexes in both orders, in threads that cannot run at the same time: the second is created
 * after the first was joined. With "barrier" it continues after a barrier that the first thread
 * reaches later. The order is wrong, but the program cannot hang unless that changes. */
#include "told.h"
#include <string.h>

MUTEX(accounts);
MUTEX(journal);
static pthread_barrier_t noon;
static int by_barrier;

static void *deposit(void *argument)
{
    TAKE(accounts);
    TAKE(journal);
    GIVE(journal);
    GIVE(accounts);
    if (by_barrier)
        pthread_barrier_wait(&noon);
    return argument;
}

static void *audit(void *argument)
{
    if (by_barrier)
        pthread_barrier_wait(&noon);
    TAKE(journal);
    TAKE(accounts);
    GIVE(accounts);
    GIVE(journal);
    return argument;
}

int main(int count, char **words)
{
    by_barrier = count > 1 && strcmp(words[1], "barrier") == 0;
    pthread_barrier_init(&noon, NULL, 2);
    pthread_t first = start(deposit, NULL);
    if (!by_barrier)
        pthread_join(first, NULL);
    pthread_t second = start(audit, NULL);
    if (by_barrier)
        pthread_join(first, NULL);
    pthread_join(second, NULL);
    TELL(accounts);
    TELL(journal);
    return 0;
}

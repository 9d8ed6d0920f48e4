/* Two mutexes in both orders, in threads that cannot meet: the second is created after the first was joined, or with "barrier" begins
 * behind a barrier that the first comes to afterwards. Wrong, but nothing hangs unless somebody changes that. */
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

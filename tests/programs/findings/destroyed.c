/* A mutex that is destroyed while it is held. */
#include "told.h"

MUTEX(session);

static void *close_it(void *argument)
{
    TAKE(session);
    pthread_mutex_destroy(&session);
    return argument;
}

int main(void)
{
    run(close_it, NULL);
    TELL(session);
    return 0;
}

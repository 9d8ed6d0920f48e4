/* A plugin with one function, FUNCTION. It takes INNER while it holds OUTER: both are `low` or
 * `high`, which have the same addresses in each plugin. */
#include <pthread.h>

pthread_mutex_t low = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t high = PTHREAD_MUTEX_INITIALIZER;

void FUNCTION(void)
{
    pthread_mutex_lock(&OUTER);
    pthread_mutex_lock(&INNER);
    pthread_mutex_unlock(&INNER);
    pthread_mutex_unlock(&OUTER);
}

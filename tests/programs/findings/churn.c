/* A new thread for each small piece of work. */
#include "told.h"

static volatile long done;

static void *little(void *argument)
{
    done++;
    return argument;
}

int main(void)
{
    for (int n = 0; n < 60; n++)
        run(little, NULL);
    return 0;
}

/* A reader, one parser and four writers, with a queue between each. The parser limits them.
 * Repaired: the parser needs half the time. */
#include "work.h"

#define ITEMS 200
#define WRITERS 4

static struct queue lines = QUEUE, records = QUEUE;
static int parse_us = 2000;

static void *read_lines(void *argument)
{
    for (int item = 1; item <= ITEMS; item++) {
        compute(300);
        put(&lines, item);
    }
    put(&lines, 0);
    return argument;
}

static void *parse(void *argument)
{
    for (int item; (item = take(&lines));) {
        compute(parse_us);
        put(&records, item);
    }
    for (int n = 0; n < WRITERS; n++)
        put(&records, 0);
    return argument;
}

static void *write_records(void *argument)
{
    while (take(&records))
        compute(300);
    return argument;
}

int main(int count, char **words)
{
    if (is_repaired(count, words))
        parse_us /= 2;
    pthread_t writers[WRITERS];
    for (int n = 0; n < WRITERS; n++)
        writers[n] = start(write_records, NULL);
    pthread_t parser = start(parse, NULL), reader = start(read_lines, NULL);
    pthread_join(reader, NULL);
    pthread_join(parser, NULL);
    for (int n = 0; n < WRITERS; n++)
        pthread_join(writers[n], NULL);
    return 0;
}

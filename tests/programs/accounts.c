// Two threads that lock two accounts of an array at a time, in order of address. The order of all
// pairs has too many locks for a graph, so the HTML report shows the accounts as one.
#include <pthread.h>
#include <stdlib.h>

#define ACCOUNTS 40

struct account {
    pthread_mutex_t lock;
    long balance;
};

static struct account *accounts;

static void *transfer(void *argument)
{
    for (int from = 0; from < ACCOUNTS - 1; from++) {
        pthread_mutex_lock(&accounts[from].lock);
        pthread_mutex_lock(&accounts[from + 1].lock);
        accounts[from].balance--;
        accounts[from + 1].balance++;
        pthread_mutex_unlock(&accounts[from + 1].lock);
        pthread_mutex_unlock(&accounts[from].lock);
    }
    return argument;
}

int main(void)
{
    pthread_t threads[2];
    accounts = calloc(ACCOUNTS, sizeof *accounts);
    for (int n = 0; n < ACCOUNTS; n++)
        pthread_mutex_init(&accounts[n].lock, NULL);
    for (int n = 0; n < 2; n++)
        pthread_create(&threads[n], NULL, transfer, NULL);
    for (int n = 0; n < 2; n++)
        pthread_join(threads[n], NULL);
    free(accounts);
    return 0;
}

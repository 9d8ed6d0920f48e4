// Variables with objects somewhere in them.
#include <array>
#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <utility>

struct Account {
    int id;
    pthread_mutex_t m;
    long balance;
};
struct Base {
    long before;
    std::mutex guard;
};
struct Shared : Base {
    union {
        std::array<std::mutex, 4> stripes;
        long other;
    };
    Shared() : stripes() {}
    ~Shared() {}
};

pthread_mutex_t one;
Account acc[4];
pthread_mutex_t l[16], grid[3][5];
std::array<std::mutex, 8> array;
std::pair<long, std::condition_variable> named;
namespace deep {
Shared shared;
const Account *pointer = acc;
}

int main()
{
    static struct {
        struct {
            char name[7];
            pthread_cond_t changed;
        } rooms[2];
    } house;
    array[1].lock();
    named.second.notify_one();
    deep::shared.guard.lock();
    return pthread_cond_signal(&house.rooms[1].changed) + pthread_mutex_lock(&acc[1].m) + pthread_mutex_lock(&l[13])
        + pthread_mutex_lock(&grid[1][2]) + pthread_mutex_lock(&one) + deep::pointer->id;
}

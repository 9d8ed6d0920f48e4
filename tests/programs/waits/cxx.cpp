// C++'s own primitives: two threads take two std::mutex in opposite orders. One thread each waits
// at a condition variable, a shared mutex, a latch, a counting semaphore, a future, and a static
// variable that another thread initializes.
#include "say.h"
#include <atomic>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <thread>
#include <vector>

static std::mutex first, second, guard;
static std::condition_variable filled;
static std::shared_mutex table;
static std::latch done(1);
static std::counting_semaphore<4> slots(0);
static std::latch both(2);
static std::atomic<int> tids[2];
static std::atomic<bool> initializing;

static void ahead()
{
    tids[0] = self();
    std::lock_guard<std::mutex> one(first);
    both.arrive_and_wait();
    while (!tids[1])
        std::this_thread::yield();
    say_wait("mutex", &second, tids[1]);
    std::lock_guard<std::mutex> two(second);
}

static void back()
{
    tids[1] = self();
    std::lock_guard<std::mutex> two(second);
    both.arrive_and_wait();
    while (!tids[0])
        std::this_thread::yield();
    say_wait("mutex", &first, tids[0]);
    std::lock_guard<std::mutex> one(first);
}

struct Slow {
    Slow()
    {
        initializing = true;
        for (;;)
            pause();
    }
};

static void use()
{
    static Slow slow;
}

int main()
{
    int own = self();
    table.lock();
    std::vector<std::thread> threads;
    threads.emplace_back(ahead);
    threads.emplace_back(back);
    threads.emplace_back([] {
        std::unique_lock<std::mutex> lock(guard);
        say_wait("cond", &filled, 0);
        filled.wait(lock);
    });
    threads.emplace_back([own] {
        say_wait("rwlock", &table, own);
        table.lock_shared();
    });
    threads.emplace_back([] {
        say_wait("barrier", &done, 0);
        done.wait();
    });
    threads.emplace_back([] {
        say_wait("sem", &slots, 0);
        slots.acquire();
    });
    threads.emplace_back(use);
    while (!initializing)
        std::this_thread::yield();
    threads.emplace_back([] {
        dprintf(1, "wait %d once 0\n", self());
        use();
    });
    while (!tids[0] || !tids[1])
        std::this_thread::yield();
    dprintf(1, "finding deadlock proved %d %d\nwaits 7\nready\n", tids[0].load(), tids[1].load());
    for (;;)
        pause();
}

// A wait at each of C++'s own primitives, and the thread that ended it.
#include "ended.h"
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <functional>
#include <latch>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <thread>

static std::mutex lock, guard;
static std::shared_mutex table;
static std::condition_variable changed;
static std::latch done(1);
static std::barrier gate(2);
static std::counting_semaphore<4> slots(0);
static std::atomic<int> word(0);
static bool is_changed;

static void way(const char *kind, const void *object, std::function<void()> wait, std::function<void()> end)
{
    volatile int waiter = 0;
    int64_t from = 0, to = 0;
    std::thread thread([&] {
        waiter = self();
        from = now_ns();
        wait();
        to = now_ns();
    });
    until_it_waits(&waiter);
    int64_t since = now_ns();
    sleep_ms(20);
    int64_t least = now_ns() - since;
    end();
    thread.join();
    tell(kind, object, waiter, self(), least, to - from);
}

int main()
{
    lock.lock();
    way("mutex", &lock, [] { std::lock_guard<std::mutex> held(lock); }, [] { lock.unlock(); });
    table.lock();
    way("rwlock", &table, [] { std::shared_lock<std::shared_mutex> held(table); }, [] { table.unlock(); });
    table.lock_shared();
    way("rwlock", &table, [] { std::lock_guard<std::shared_mutex> held(table); }, [] { table.unlock_shared(); });
    way("cond", &changed,
        [] {
            std::unique_lock<std::mutex> held(guard);
            changed.wait(held, [] { return is_changed; });
        },
        [] {
            {
                std::lock_guard<std::mutex> held(guard);
                is_changed = true;
            }
            changed.notify_one();
        });
    way("barrier", &done, [] { done.wait(); }, [] { done.count_down(); });
    way("sem", &slots, [] { slots.acquire(); }, [] { slots.release(); });
    way("futex", &word, [] { word.wait(0); }, [] {
        word = 1;
        word.notify_one();
    });
}

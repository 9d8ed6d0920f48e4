// Two std::mutex in both orders by std::lock_guard, in threads that could meet and do not;
// std::scoped_lock, which takes two in any order and cannot hang; and a pool that waits for work.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

static std::mutex accounts, journal, left, right_hand, jobs_lock;
static std::condition_variable filled;
static std::queue<int> jobs;
static bool over;
static std::atomic<int> turn;
static long sum;

static void await_turn(int number)
{
    while (turn != number)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
}

static void deposit()
{
    for (int round = 0; round < 2; round++) {
        await_turn(2 * round);
        {
            std::lock_guard<std::mutex> one(accounts);
            std::lock_guard<std::mutex> two(journal);
        }
        turn++;
    }
}

static void audit()
{
    for (int round = 0; round < 2; round++) {
        await_turn(2 * round + 1);
        {
            std::lock_guard<std::mutex> one(journal);
            std::lock_guard<std::mutex> two(accounts);
        }
        turn++;
    }
}

static void clap()
{
    for (int round = 0; round < 20; round++)
        std::scoped_lock both(left, right_hand);
}

static void clap_the_other_way()
{
    for (int round = 0; round < 20; round++)
        std::scoped_lock both(right_hand, left);
}

static void work()
{
    std::unique_lock<std::mutex> lock(jobs_lock);
    for (;;) {
        filled.wait(lock, [] { return over || !jobs.empty(); });
        if (jobs.empty())
            return;
        sum += jobs.front();
        jobs.pop();
    }
}

int main()
{
    std::thread depositing(deposit), auditing(audit);
    depositing.join();
    auditing.join();
    std::thread one(clap), two(clap_the_other_way);
    one.join();
    two.join();
    std::vector<std::thread> pool;
    for (int n = 0; n < 3; n++)
        pool.emplace_back(work);
    for (int n = 0; n < 20; n++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::lock_guard<std::mutex> lock(jobs_lock);
        jobs.push(n);
        filled.notify_one();
    }
    {
        std::lock_guard<std::mutex> lock(jobs_lock);
        over = true;
        filled.notify_all();
    }
    for (std::thread &thread : pool)
        thread.join();
    return sum == 19 * 20 / 2 ? 0 : 1;
}

// Threads of the C++ library for functions, member functions, lambdas and objects, and one of the
// C library. Each prints its id and its purpose. With an argument the threads then stay.
#include <cstdio>
#include <functional>
#include <future>
#include <thread>
#include <unistd.h>
#include <vector>

static bool stay;

static void say(const char *what)
{
    dprintf(1, "%d %s\n", gettid(), what);
    while (stay)
        pause();
}

static void plain() { say("plain"); }
static void numbered(char, double, const char *) { say("numbered"); }
static void also_numbered(char, double, const char *) { say("also_numbered"); }

static void given(std::function<void()> first, std::vector<int>)
{
    first();
    say("given");
}

static int answer()
{
    say("answer");
    return 42;
}

extern "C" void *routine(void *)
{
    say("routine");
    return nullptr;
}

struct Pool {
    virtual ~Pool() {}
    void work(short) { say("work"); }
    virtual void serve() { say("serve"); }
};

struct Job {
    int number;
    void operator()() const { say("job"); }
};

template <typename T> struct Task {
    T value;
    void operator()(T) { say("task"); }
};

int main(int argc, char **)
{
    stay = argc > 1;
    Pool pool;
    const char *what = "capturing";
    std::function<void()> first = [] {};
    std::vector<int> numbers(3);
    std::vector<std::thread> threads;
    threads.emplace_back(plain);
    threads.emplace_back(numbered, 'a', 1.5, "one");
    threads.emplace_back(also_numbered, 'b', 2.5, "two");
    threads.emplace_back(given, first, numbers);
    threads.emplace_back(&Pool::work, std::ref(pool), short(3));
    threads.emplace_back(&Pool::serve, &pool);
    threads.emplace_back([] { say("lambda"); });
    threads.emplace_back([what](int) { say(what); }, 4);
    threads.emplace_back(Job{5});
    threads.emplace_back(Task<int>{6}, 7);
    std::jthread stopped([](std::stop_token) { say("stopped"); });
    pthread_t thread;
    // No pointer at all.
    pthread_create(&thread, nullptr, routine, reinterpret_cast<void *>(8));
    auto later = std::async(std::launch::async, [] {
        say("later");
        return 7;
    });
    auto called = std::async(std::launch::async, answer);
    for (auto &t : threads)
        t.join();
    pthread_join(thread, nullptr);
    return later.get() + called.get() == 49 ? 0 : 1;
}

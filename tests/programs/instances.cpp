// Threads that run instances of function templates.
#include <thread>

template <class T> struct Box {
    T content;
};

template <class T> __attribute__((noinline)) void work() { std::this_thread::yield(); }

template <class T> __attribute__((noinline)) void only() { std::this_thread::yield(); }

int main() {
    std::thread threads[] = {
        std::thread(work<int>),
        std::thread(work<Box<Box<int> > >),
        std::thread(only<int>),
    };
    for (auto &thread : threads)
        thread.join();
}

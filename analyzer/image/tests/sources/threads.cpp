#include <thread>
struct Job {
    void operator()() const {}
};
void start()
{
    std::thread([] {}).join();
    std::thread(Job()).join();
}
int main() { start(); }

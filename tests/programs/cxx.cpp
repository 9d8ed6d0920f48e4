// std::thread with a lambda, a member function and a template, and std::async. The creation path
// runs through the C++ library, and the thread function is the library's.
#include <cstdio>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

namespace bank {

class Account {
public:
    void deposit(long amount) { balance_ += amount; }
    long balance() const { return balance_; }

    void deposit_in_background(long amount)
    {
        std::thread worker(&Account::deposit, this, amount);
        worker.join();
    }

private:
    long balance_ = 0;
};

template <typename Number>
Number parallel_sum(const std::vector<Number> &numbers)
{
    Number low{}, high{};
    const auto middle = numbers.begin() + static_cast<long>(numbers.size() / 2);
    std::thread first([&] { low = std::accumulate(numbers.begin(), middle, Number{}); });
    std::thread second([&] { high = std::accumulate(middle, numbers.end(), Number{}); });
    first.join();
    second.join();
    return low + high;
}

} // namespace bank

int main()
{
    bank::Account account;
    account.deposit_in_background(100);
    std::vector<int> numbers(100);
    std::iota(numbers.begin(), numbers.end(), 1);
    const int sum = bank::parallel_sum(numbers);
    auto later = std::async(std::launch::async, [] { return 7; });
    const long total = account.balance() + sum + later.get();
    std::printf("cxx: total %ld\n", total);
    return total == 5157 ? 0 : 1;
}

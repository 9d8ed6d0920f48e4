// Code for lookups of addresses: inlined functions, templates, lambdas, virtual functions, cold
// paths, and data symbols.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {
template <class T> struct Table {
    std::map<std::string, std::vector<T>> rows;
    void add(const std::string &key, T value) { rows[key].push_back(value); }
    T sum() const {
        T sum{};
        for (auto &row : rows)
            for (auto &value : row.second)
                sum = sum + value;
        return sum;
    }
};
} // namespace

struct Base {
    virtual ~Base() {}
    virtual int apply(int) = 0;
};

template <int N> struct Derived : Base {
    int apply(int x) override {
        int sum = 0;
        for (int i = 0; i < N; i++)
            sum += (x * i) ^ N;
        return sum;
    }
};

int global_counter = 5;
static int local_counter[10];
const char *names[] = {"a", "b"};

static inline int twice(int x) { return x * 2 + 1; }

__attribute__((noinline)) static int smallest(std::vector<int> &values) {
    std::sort(values.begin(), values.end(), [](int a, int b) { return twice(a) < twice(b); });
    return values.empty() ? 0 : values[0];
}

int main(int argc, char **argv) {
    Table<int> whole;
    Table<double> halves;
    std::vector<int> values;
    for (int i = 0; i < argc * 10; i++) {
        whole.add(std::to_string(i), i);
        halves.add(argv[0], i * .5);
        values.push_back(i * 7 % 11);
    }
    std::vector<std::unique_ptr<Base>> all;
    all.emplace_back(new Derived<3>);
    all.emplace_back(new Derived<7>);
    int sum = 0;
    for (auto &one : all)
        sum += one->apply(argc);
    std::function<int(int)> next = [&](int x) { return x + sum + global_counter++; };
    std::ostringstream out;
    out << whole.sum() << halves.sum() << smallest(values) << next(3) << local_counter[argc]++;
    try {
        if (argc > 3)
            throw std::runtime_error(names[0]);
    } catch (std::exception &error) {
        std::cerr << error.what();
    }
    std::cout << out.str() << "\n";
    return 0;
}

#include <thread>
#include <vector>
#include <string>
#include <cstdio>
#include <functional>
namespace outer { namespace { struct Hidden { template<class T> int run(T v) const; }; 
template<class T> int Hidden::run(T v) const { std::puts("x"); return int(v); } }
template<class T, int N> struct Box { std::vector<T> v; static int go(const std::vector<std::string>& s); int operator()(int a); operator bool() const; };
template<class T,int N> int Box<T,N>::go(const std::vector<std::string>& s) { std::puts("g"); return N; }
template<class T,int N> int Box<T,N>::operator()(int a) { std::puts("o"); return a; }
template<class T,int N> Box<T,N>::operator bool() const { std::puts("b"); return true; }
std::function<int(int)> (*fp(int a))(std::string) { std::puts("f"); return nullptr; }
static inline __attribute__((always_inline)) int inl(int a) { std::puts("inl"); return a+1; }
template<class F> auto call(F f, int n) -> decltype(f(n)) { return f(n); }
}
static int stat(long a) { std::puts("stat"); return outer::inl(a); }
extern "C" int cfun(int a) { auto l = [a](int b) { std::puts("l"); return a+b; }; return outer::call(l, 3); }
int main() { outer::Hidden h; h.run(3L); outer::Box<std::string,4> b; b.go({}); b(3); if (b) outer::fp(3); stat(3); cfun(4);
 std::thread t([]{ std::puts("t"); }); t.join(); auto m=[](auto x){ std::puts("gen"); return x;}; m(3); m("s"); }

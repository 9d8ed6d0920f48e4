// Two lambdas in each of two functions; none is inlined.
#define KEPT __attribute__((noinline))
volatile int sum;
static KEPT void first() { [] KEPT { sum = 1; }(); [] KEPT { sum = 2; }(); }
static KEPT void second() { [] KEPT { sum = 3; }(); [] KEPT { sum = 4; }(); }
int main() { first(); second(); }

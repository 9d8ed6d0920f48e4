/* Two threads that spend three quarters of their processor time in `three` and one quarter in
 * `one`. Prints the processor time of the process in nanoseconds.
 *
 * A round takes many times the period of the samples: rounds as short as a period would meet the
 * samples always at the same places.
 *
 * Argument: how many times longer to run. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PART 4000000
#define ROUNDS 15

static int rounds = ROUNDS;

static __thread volatile uint64_t sink;

__attribute__((noinline)) static void burn(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		sink += i * i;
}

__attribute__((noinline)) static void three(void)
{
	burn(3 * PART);
	sink++;
}

__attribute__((noinline)) static void one(void)
{
	burn(PART);
	sink++;
}

__attribute__((noinline)) static void *work(void *arg)
{
	for (int i = 0; i < rounds; i++) {
		three();
		one();
	}
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	struct timespec used;
	if (argc > 1)
		rounds *= atoi(argv[1]);
	pthread_create(&thread, 0, work, 0);
	work(0);
	pthread_join(thread, 0);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	printf("%lld\n", used.tv_sec * 1000000000LL + used.tv_nsec);
	return 0;
}

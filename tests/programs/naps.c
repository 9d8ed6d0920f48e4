/* A thread that computes for 0.4 ms, three quarters of it in `three` and one in `one`, and then
 * sleeps for 1 ms, again and again for four seconds. */
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;
static uint64_t part = 1000000;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void burn(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		sink += i * i;
}

__attribute__((noinline)) static void three(void)
{
	burn(3 * part);
	sink++;
}

__attribute__((noinline)) static void one(void)
{
	burn(part);
	sink++;
}

__attribute__((noinline)) static void *work(void *arg)
{
	double end = now() + 4;
	while (now() < end) {
		three();
		one();
		usleep(1000);
	}
	return arg;
}

int main(void)
{
	pthread_t thread;
	double before = now();
	burn(part);
	part *= 1e-4 / (now() - before);
	pthread_create(&thread, 0, work, 0);
	pthread_join(thread, 0);
	return 0;
}

/* Blocks its threads in known functions: asleep() sleeps, reads() waits for a pipe, and locks() for
   a mutex. Prints how long each was blocked, in nanoseconds. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define TURNS 10
#define MS 1000000L

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];
static uint64_t slept_ns, read_ns, locked_ns;

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void pause_ms(long ms)
{
	struct timespec time = {0, ms * MS};
	nanosleep(&time, NULL);
}

__attribute__((noinline)) static void asleep(void)
{
	uint64_t from = now();
	pause_ms(30);
	slept_ns += now() - from;
}

__attribute__((noinline)) static void reads(void)
{
	char byte;
	uint64_t from = now();
	if (read(ends[0], &byte, 1) == 1)
		read_ns += now() - from;
}

__attribute__((noinline)) static void locks(void)
{
	uint64_t from = now();
	pthread_mutex_lock(&mutex);
	locked_ns += now() - from;
	pthread_mutex_unlock(&mutex);
}

static void *reader(void *none)
{
	for (int turn = 0; turn < TURNS; turn++)
		reads();
	return none;
}

static void *locker(void *none)
{
	for (int turn = 0; turn < TURNS; turn++) {
		locks();
		pause_ms(5);
	}
	return none;
}

int main(void)
{
	pthread_t threads[2];
	if (pipe(ends) != 0)
		return 1;
	pthread_mutex_lock(&mutex);
	pthread_create(&threads[0], NULL, reader, NULL);
	pthread_create(&threads[1], NULL, locker, NULL);
	for (int turn = 0; turn < TURNS; turn++) {
		asleep();
		if (write(ends[1], "x", 1) != 1)
			return 1;
		pthread_mutex_unlock(&mutex);
		pause_ms(2);
		pthread_mutex_lock(&mutex);
	}
	pthread_mutex_unlock(&mutex);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", slept_ns, read_ns, locked_ns);
	return 0;
}

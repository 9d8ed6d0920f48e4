/* Threads made by C11's thrd_create, whose start routine returns an int. */
#include <stdio.h>
#include <threads.h>

static int square(void *argument)
{
    int n = *(int *)argument;
    return n * n;
}

static int sum_of_squares(int *numbers, int count)
{
    thrd_t threads[4];
    int sum = 0;
    for (int n = 0; n < count; n++)
        if (thrd_create(&threads[n], square, &numbers[n]) != thrd_success)
            return -1;
    for (int n = 0; n < count; n++) {
        int result;
        thrd_join(threads[n], &result);
        sum += result;
    }
    return sum;
}

int main(void)
{
    int numbers[] = {1, 2, 3, 4};
    int sum = sum_of_squares(numbers, 4);
    printf("c11: sum of squares %d\n", sum);
    return sum == 30 ? 0 : 1;
}

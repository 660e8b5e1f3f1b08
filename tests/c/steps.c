/* A program that calls a function often, and exits with status 7. */

#include <stdio.h>

static volatile int sink;

int step(int rounds);

int step(int rounds)
{
    for (int i = 0; i < rounds; i++)
        sink += i;
    return sink;
}

int main(void)
{
    for (int i = 0; i < 1000; i++)
        step(100);
    puts("hello");
    return 7;
}

/* The cost of the hooks in functions that are off, counted by callgrind. */
#include "script.h"

#define QUIET __attribute__((no_instrument_function))
#define NOINLINE __attribute__((noinline))

static volatile unsigned sink;

/* A function without hooks, and one with them. */
QUIET NOINLINE void plain(void)
{
    __asm__ volatile("" ::: "memory");
}

NOINLINE void hooked(void)
{
    __asm__ volatile("" ::: "memory");
}

NOINLINE void other(void)
{
    sink = sink + 1;
}

/* Callgrind counts the instructions inside these functions. */
QUIET NOINLINE void count_plain(unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        plain();
}

QUIET NOINLINE void count_hooked(unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        hooked();
}

QUIET int main(int count, char **arguments)
{
    unsigned times = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    hooked();
    other();
    count_plain(times);
    count_hooked(times);
    return 0;
}

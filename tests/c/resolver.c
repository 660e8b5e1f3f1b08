/* A function whose code is chosen as the program is put together, by an instrumented function:
 * before there is anything that a hook could use. */
#include <stdio.h>

int chosen(void);
int twice(int number);

static int implementation(void)
{
    return 42;
}

__attribute__((unused)) static int (*resolve(void))(void)
{
    return implementation;
}

int chosen(void) __attribute__((ifunc("resolve")));

int twice(int number)
{
    return 2 * number;
}

int main(void)
{
    printf("%d %d\n", chosen(), twice(3));
    return 0;
}

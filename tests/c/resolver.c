/* An indirect function, whose resolver is instrumented. The resolver runs while the program is
 * being relocated, before hooks can use thread-local storage. */
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

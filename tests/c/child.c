/* A child process, built for 32 or 64 bits. Prints its word size. */

#include <stdio.h>

int main(void)
{
    printf("child of %d bits\n", (int)(8 * sizeof(void *)));
    return 3;
}

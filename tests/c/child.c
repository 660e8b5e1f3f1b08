/* A child of any kind: says of how many bits it is. */

#include <stdio.h>

int main(void)
{
    printf("child of %d bits\n", (int)(8 * sizeof(void *)));
    return 3;
}

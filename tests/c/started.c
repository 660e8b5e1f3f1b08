/* A program that shows by a file that it was started. */
#include <stdio.h>

#ifdef OWN_MALLOC
#include <stddef.h>

void *malloc(size_t bytes)
{
    static char memory[1 << 16];
    static size_t used;
    char *taken = memory + used;
    used += (bytes + 15) / 16 * 16;
    return used < sizeof memory ? taken : NULL;
}
#endif

int main(void)
{
    FILE *file = fopen("started", "w");
    return file == NULL;
}

/* A preloaded library that replaces getrandom(): every program then chooses the same names, which
 * repeat the eight hexadecimal digits of PFP_TEST_CHANCE. */
#include <stdlib.h>
#include <sys/random.h>

ssize_t getrandom(void *bytes, size_t length, unsigned flags)
{
    const char *chance = getenv("PFP_TEST_CHANCE");
    unsigned long word = chance ? strtoul(chance, NULL, 16) : 0;
    unsigned char *byte = bytes;
    (void)flags;
    for (size_t i = 0; i < length; i++)
        byte[i] = (unsigned char)(word >> 8 * (3 - i % 4));
    return (ssize_t)length;
}

/* Preloaded, it takes chance away: every program then chooses the same names. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

ssize_t getrandom(void *bytes, size_t length, unsigned flags)
{
    (void)flags;
    memset(bytes, 0x5a, length);
    return (ssize_t)length;
}

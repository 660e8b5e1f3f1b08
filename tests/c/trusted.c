/* Measures, and says what it has mapped, and whether it has other rights than whoever
 * started it. */
#include <pfp.h>

#include <string.h>
#include <sys/auxv.h>

#include "script.h"

int main(void)
{
    char line[512];
    FILE *maps;
    unsigned long from, to;
    int is_ours = 0, at;

    for (at = 0; at < 10; at++) {
        PFP_SCOPE("work");
    }
    say("secure %lu", getauxval(AT_SECURE));
    maps = fopen("/proc/self/smaps", "r");
    EXPECT(maps);
    while (fgets(line, sizeof line, maps)) {
        if (strstr(line, "/dev/shm/pfp-")) {
            EXPECT(sscanf(line, "%lx-%lx", &from, &to) == 2);
            say("mapped %lu", to - from);
        }
        /* Of the mappings themselves, not of what is said of them. */
        if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
            is_ours = strstr(line, "/dev/shm/pfp-") || strstr(line, ".beacon");
        if (is_ours && !strncmp(line, "VmFlags:", 8))
            say("dumped %d", strstr(line, " dd") ? 0 : 1);
    }
    fclose(maps);
    return 0;
}

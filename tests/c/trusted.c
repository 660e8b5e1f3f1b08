/* Measures, and says whether it has other rights than whoever started it. */
#include <pfp.h>

#include <sys/auxv.h>

#include "script.h"

int main(void)
{
    for (int i = 0; i < 10; i++) {
        PFP_SCOPE("work");
    }
    {
        PFP_SCOPE("asked for");
    }
    say("secure %lu", getauxval(AT_SECURE));
    reach("done");
    return 0;
}

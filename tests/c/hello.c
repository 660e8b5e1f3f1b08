/* A minimal program: one point by number, one by name. */
#include <pfp.h>

#include "script.h"

static unsigned work(unsigned rounds)
{
    PFP_SCOPE("work");
    volatile unsigned sum = 0;
    for (unsigned i = 0; i < rounds; i++)
        sum = sum + i;
    return sum;
}

int main(void)
{
    pfpStats_t stats;
    unsigned sum = 0;

    EXPECT(pfpCreate() == PFP_OK);
    EXPECT(pfpEnable(1) == PFP_OK);
    for (int i = 0; i < 1000; i++) {
        pfpBegin(1, NULL);
        sum += work(100);
        pfpEnd(1, 0);
    }
    EXPECT(pfpGetStats(1, &stats) == PFP_OK);
    say("sum %u", sum);
    say("count %llu", (unsigned long long)stats.n_count);
    say("inclusive %llu", (unsigned long long)stats.c_inclusive);
    reach("measured");
    return 0;
}

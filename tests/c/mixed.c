/* This source measures, and mixed_without.c does not. */
#include <pfp.h>

#include "script.h"

int without(int x);

static int with(int x)
{
    PFP_SCOPE("with");
    return x + 1;
}

int main(void)
{
    pfpStats_t stats;
    int sum = 0;
    EXPECT(pfpCreate() == PFP_OK && pfpEnable(1) == PFP_OK);
    for (int i = 0; i < 100; i++) {
        pfpBegin(1, NULL);
        sum += with(i) + without(i);
        pfpEnd(1, 0);
    }
    EXPECT(pfpGetStats(1, &stats) == PFP_OK && stats.n_count == 100);
    say("sum %d", sum);
    reach("done");
    return 0;
}

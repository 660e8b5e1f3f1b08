#define PFP_DISABLE
#include <pfp.h>

int without(int x);

int without(int x)
{
    PFP_SCOPE("without");
    PFP_FUNCTION();
    pfpStats_t stats;
    pfpDisable(1);
    pfpResetStats(1);
    return x + (pfpGetStats(1, &stats) == PFP_OK ? (int)stats.n_count : 1);
}

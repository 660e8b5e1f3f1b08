/* Links two libraries into one program, both written in Rust. */
#include <pfp.h>

#include "script.h"

int other(void);

int main(void)
{
    pfpStats_t stats;
    EXPECT(pfpCreate() == PFP_OK);
    EXPECT(pfpEnable(1) == PFP_OK);
    EXPECT(pfpBegin(1, NULL) == PFP_OK);
    EXPECT(other() == 7);
    EXPECT(pfpEnd(1, 0) == PFP_OK);
    EXPECT(pfpGetStats(1, &stats) == PFP_OK);
    EXPECT(stats.n_count == 1);
    return 0;
}

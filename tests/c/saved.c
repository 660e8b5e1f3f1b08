/* Saves its own figures to the file that its argument names. */
#include <errno.h>
#include <string.h>

#include <pfp.h>

#include "script.h"

int main(int count, char **arguments)
{
    const char *file = count > 1 ? arguments[1] : NULL;

    EXPECT(file);
    for (int i = 0; i < 1000; i++) {
        PFP_SCOPE("work");
    }
    EXPECT(pfp_snapshot_to(NULL) == PFP_ENULL);
    EXPECT(pfp_snapshot_to(file) == PFP_OK);
    errno = 0;
    EXPECT(pfp_snapshot_to(file) == PFP_EFILE && errno == EEXIST);
    EXPECT(strstr(pfp_error(PFP_EFILE), "pfp_snapshot_over"));
    EXPECT(pfp_snapshot_over(file) == PFP_OK);
    errno = 0;
    EXPECT(pfp_snapshot_over("/proc/nowhere/a") == PFP_EFILE && errno == ENOENT);
    reach("saved");
    return 0;
}

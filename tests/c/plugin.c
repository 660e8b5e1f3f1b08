/* A plugin, which comes and goes. */
#include <pfp.h>

int plug(int x);

int plug(int x)
{
    PFP_SCOPE("plugin");
    return x + 1;
}

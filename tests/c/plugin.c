/* A plugin, which is loaded and unloaded. */
#include <pfp.h>

int plug(int x);

int plug(int x)
{
    PFP_SCOPE("plugin");
    return x + 1;
}

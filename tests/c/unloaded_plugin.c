/* A plugin that measures. */
#include <pfp.h>

int call(int times);

int call(int times)
{
    PFP_SCOPE("in a plugin");
    return times;
}

/* All macros of the header, once. */
#include <pfp.h>

int main(void)
{
    pfp_point_t *point = pfp_point("named", __FILE__, 1);
    PFP_FUNCTION();
    PFP_SCOPE("scope");
    PFP_SCOPE_OF(point);
    return 0;
}

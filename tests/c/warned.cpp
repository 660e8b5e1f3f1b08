/* All macros of the header, once. */
#include <pfp.hpp>

int main()
{
    static pfp::point point("named", __FILE__, __LINE__);
    PFP_FUNCTION();
    PFP_SCOPE("scope");
    PFP_SCOPE_OF(point);
    return 0;
}

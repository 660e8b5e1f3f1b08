/* Uses each macro of the header, none of which may cause a compiler warning. */
#include <pfp.hpp>

int main()
{
    static pfp::point point("named", __FILE__, __LINE__);
    pfp_point_t *timed = pfp_point_amounts("timed", __FILE__, 1, "number,size");
    const short number = 3;
    const double size = 7.5;
    PFP_FUNCTION();
    PFP_SCOPE("scope");
    PFP_SCOPE_OF(point);
    PFP_METERED("timed", 3 * 8, 3.5);
    PFP_AMOUNTS("amounts", "a,b,c,d", 1, -2L, 3U, 4.5F);
    PFP_AMOUNTS_OF(timed, number, size);
    return 0;
}

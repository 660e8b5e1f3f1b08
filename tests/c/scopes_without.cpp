// Compiled with measuring disabled, in a program whose other sources measure.
#define PFP_DISABLE
#include <pfp.hpp>

unsigned in_a_source_without(unsigned x);

static pfp::point nothing("nothing", __FILE__, __LINE__);

unsigned in_a_source_without(unsigned x)
{
    PFP_SCOPE("nothing");
    PFP_SCOPE_OF(nothing);
    PFP_FUNCTION();
    (void)nothing.enable();
    return x + static_cast<unsigned>(nothing.stats().n_count);
}

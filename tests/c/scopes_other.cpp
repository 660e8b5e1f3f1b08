#include "shared.hpp"

unsigned in_the_other_source(unsigned x)
{
    PFP_SCOPE("in the other source");
    return in_a_header(x);
}

/* An inline function of a header, which two sources include. */
#ifndef SHARED_HPP
#define SHARED_HPP

#include <pfp.hpp>

inline unsigned in_a_header(unsigned x)
{
    PFP_SCOPE("in a header");
    return x + 1;
}

unsigned in_the_other_source(unsigned x);
unsigned in_a_source_without(unsigned x);

#endif

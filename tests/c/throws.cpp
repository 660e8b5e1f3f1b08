// C++ functions with types in their names, exceptions, inlined members and templates.
#include <cstdio>
#include <stdexcept>

__attribute__((no_instrument_function)) static void say(const char *, ...);
__attribute__((no_instrument_function)) static void reach(const char *);
#include "script.h"

#define NOINLINE __attribute__((noinline))

static volatile unsigned sink;

namespace shop {

NOINLINE void pays(unsigned price)
{
    sink = sink + price;
    if (price == 0)
        throw std::runtime_error("nothing to pay");
}

struct Basket {
    unsigned items;
    unsigned size() const { return items; }
    NOINLINE void buy(unsigned price) { pays(price - size()); }
};

template <class T> NOINLINE T most(T a, T b)
{
    return a < b ? b : a;
}

} // namespace shop

static unsigned caught;

NOINLINE static void tries(unsigned price)
{
    try {
        shop::Basket basket = {1};
        basket.buy(price);
    } catch (const std::exception &) {
        caught++;
    }
}

__attribute__((no_instrument_function)) int main()
{
    reach("begun");
    for (unsigned i = 0; i < 1000; i++)
        tries(1 + i % 2);
    sink = sink + shop::most(1u, 2u);
    say("caught %u", caught);
    reach("done");
    return 0;
}

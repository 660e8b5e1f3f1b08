// Scopes in every kind of C++ function, and points as objects.
#include <pfp.hpp>

#include <stdexcept>
#include <thread>
#include <vector>

#include "script.h"
#include "shared.hpp"

static pfp::point object("an object", __FILE__, __LINE__);

// Measures before `main` begins, whatever the order of the constructors, and after `main` ends.
struct Early {
    Early()
    {
        PFP_SCOPE("constructor");
        PFP_SCOPE_OF(object);
    }
    ~Early()
    {
        PFP_SCOPE("destructor");
        PFP_SCOPE_OF(object);
    }
};
static Early early;

template <typename T> static T twice(T x)
{
    PFP_SCOPE("template");
    return x + x;
}

static void throws(int depth)
{
    PFP_FUNCTION();
    if (depth == 0)
        throw std::runtime_error("as intended");
    throws(depth - 1);
}

int main()
{
    const std::string number = "7";
    EXPECT(pfp::set_program_name("scopes " + number) == PFP_OK);
    EXPECT(pfp::register_thread("main " + number) == PFP_OK);

    unsigned sum = 0;
    for (unsigned i = 0; i < 100; i++)
        sum += in_a_header(i) + in_the_other_source(i) + in_a_source_without(i);
    // A name and a line identify a point, so both instances of the template share one.
    for (int i = 0; i < 50; i++)
        sum += static_cast<unsigned>(twice(i) + static_cast<int>(twice(0.5)));
    const auto lambda = [](unsigned x) {
        PFP_SCOPE("lambda");
        return x;
    };
    for (unsigned i = 0; i < 30; i++)
        sum += lambda(i);
    for (int i = 0; i < 20; i++) {
        try {
            throws(9);
        } catch (const std::runtime_error &) {
            sum++;
        }
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([i] {
            pfp::register_thread("thread " + std::to_string(i));
            for (int round = 0; round < 1000; round++) {
                PFP_SCOPE_OF(object);
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();

    EXPECT(object.stats().n_count == 4001);
    EXPECT(object.disable() == PFP_OK && !object.stats().enabled);
    {
        PFP_SCOPE_OF(object);
    }
    EXPECT(object.stats().n_count == 4001);
    EXPECT(object.enable() == PFP_OK && object.reset() == PFP_OK);
    EXPECT(object.average(0) == PFP_EALPHA && object.average(0.5) == PFP_OK);
    for (int round = 0; round < 3; round++) {
        PFP_SCOPE_OF(object);
    }
    EXPECT(object.stats().n_count == 3 && object.stats().alpha > 0);
    EXPECT(object.average_no_longer() == PFP_OK && object.stats().alpha <= 0);
    pfp_point_t *made = pfp::named("made " + number);
    EXPECT(made == pfp::named("made 7"));
    {
        PFP_SCOPE_OF(made);
    }
    say("sum %u", sum);
    reach("done");
    return 0;
}

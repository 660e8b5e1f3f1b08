/*
 * pfp.h for C++11: points as objects, names as strings. Nothing here throws.
 *
 *     static pfp::point parse("parse", __FILE__, __LINE__);
 *
 *     void each(const std::string &line)
 *     {
 *         PFP_SCOPE_OF(parse);
 *         ...
 *     }
 *     ...
 *     parse.enable();
 *     double mean = parse.stats().c_mean;
 *
 * With PFP_DISABLE, it compiles to nothing, like pfp.h. Objects compiled with and without
 * it can be linked together.
 */
#ifndef PFP_HPP
#define PFP_HPP

#include "pfp.h"

#include <atomic>
#include <string>

namespace pfp {

/* The namespace has another name if measuring is compiled out, so that the linker does not
 * merge functions of both kinds. */
#ifdef PFP_DISABLE
inline namespace off {
#else
inline namespace on {
#endif

/* A point, to be defined as a static. It can be used before the constructors of statics have
 * run, and after their destructors. The first use looks it up; objects with the same name and
 * place share one. The name must stay valid, like a literal, because it is not copied. The
 * functions act like those of pfp.h, and return the same values. */
class point {
public:
    constexpr explicit point(const char *name, const char *file = nullptr,
                             unsigned line = 0) noexcept
        : known_(nullptr), name_(name), file_(file), amounts_(nullptr), line_(line)
    {
    }
    /* A point whose regions have amounts, for PFP_AMOUNTS_OF(). `amounts` contains their
     * names, separated by commas. */
    constexpr point(const char *name, const char *file, unsigned line,
                    const char *amounts) noexcept
        : known_(nullptr), name_(name), file_(file), amounts_(amounts), line_(line)
    {
    }
    point(const point &) = delete;
    point &operator=(const point &) = delete;

    /* Converts to the type in pfp.h, for PFP_SCOPE_OF() and all functions that take a point.
     * NULL only if the point cannot be created. */
    operator pfp_point_t *() noexcept
    {
        /* Pairs with the release in find(). */
        pfp_point_t *known = known_.load(std::memory_order_acquire);
        return known ? known : find();
    }

    int enable() noexcept { return pfp_enable(*this); }
    int disable() noexcept { return pfp_disable(*this); }
    int reset() noexcept { return pfp_reset(*this); }
    int average(double alpha) noexcept { return pfp_set_alpha(*this, alpha); }
    int average_no_longer() noexcept { return pfp_clear_alpha(*this); }

    /* All zeros before the first measurement, or if the point cannot be created. */
    pfpStats_t stats() noexcept
    {
        pfpStats_t stats = pfpStats_t();
        (void)pfp_get_stats(*this, &stats);
        return stats;
    }

    /* Writes the sums of the amounts; see pfp_get_amounts(). */
    int amounts(uint64_t *sums, unsigned count) noexcept
    {
        return pfp_get_amounts(*this, sums, count);
    }

private:
    pfp_point_t *find() noexcept
    {
        pfp_point_t *found = amounts_ ? pfp_point_amounts(name_, file_, line_, amounts_)
                                      : pfp_point(name_, file_, line_);
        known_.store(found, std::memory_order_release);
        return found;
    }

    std::atomic<pfp_point_t *> known_;
    const char *name_;
    const char *file_;
    const char *amounts_;
    unsigned line_;
};

/* A timer of the wall clock and of a thread's CPU time; see pfp_timer_start(). */
class cpu_timer {
public:
    cpu_timer() noexcept : timer_() {}
    void start() noexcept { (void)pfp_timer_start(&timer_); }
    void stop() noexcept { (void)pfp_timer_stop(&timer_); }
    double elapsed_ms() const noexcept { return pfp_timer_elapsed_ms(&timer_); }
    double on_cpu_ms() const noexcept { return pfp_timer_on_cpu_ms(&timer_); }

private:
    pfp_timer_t timer_;
};

/* Returns the point of a name that is created at run time. The name is copied. Call once
 * and keep the result. */
inline pfp_point_t *named(const std::string &name) noexcept
{
    return pfp_point(name.c_str(), nullptr, 0);
}

inline int set_program_name(const std::string &name) noexcept
{
    return pfp_set_program_name(name.c_str());
}

inline int register_thread(const std::string &name) noexcept
{
    return pfp_register_thread(name.c_str());
}

} // namespace on or off
} // namespace pfp

#endif /* PFP_HPP */

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
 * With PFP_DISABLE it compiles to nothing, as pfp.h does, and objects with and
 * without it can be linked together.
 */
#ifndef PFP_HPP
#define PFP_HPP

#include "pfp.h"

#include <atomic>
#include <string>

namespace pfp {

/* Of another name where nothing is measured, so that the linker does not take one's
 * functions for the other's. */
#ifdef PFP_DISABLE
inline namespace off {
#else
inline namespace on {
#endif

/* A point that can be used before any constructor has run and after all destructors
 * have, so that it can be a static of any kind. The first use looks it up; those of
 * the same name and place are one. The name is a literal or as good as one: it is
 * not copied. Functions do what those of pfp.h do, and return what they return. */
class point {
public:
    constexpr explicit point(const char *name, const char *file = nullptr,
                             unsigned line = 0) noexcept
        : known_(nullptr), name_(name), file_(file), amounts_(nullptr), line_(line)
    {
    }
    /* One whose regions have amounts, for PFP_AMOUNTS_OF(): their names, with commas
     * between them. */
    constexpr point(const char *name, const char *file, unsigned line,
                    const char *amounts) noexcept
        : known_(nullptr), name_(name), file_(file), amounts_(amounts), line_(line)
    {
    }
    point(const point &) = delete;
    point &operator=(const point &) = delete;

    /* As pfp.h has it, for PFP_SCOPE_OF() and all functions that take a point. NULL
     * only if there is no room for it. */
    operator pfp_point_t *() noexcept
    {
        /* Meets the release below: what is behind the pointer is there. */
        pfp_point_t *known = known_.load(std::memory_order_acquire);
        return known ? known : find();
    }

    int enable() noexcept { return pfp_enable(*this); }
    int disable() noexcept { return pfp_disable(*this); }
    int reset() noexcept { return pfp_reset(*this); }
    int average(double alpha) noexcept { return pfp_set_alpha(*this, alpha); }
    int average_no_longer() noexcept { return pfp_clear_alpha(*this); }

    /* All zeros before the first measurement, and if there is no such point. */
    pfpStats_t stats() noexcept
    {
        pfpStats_t stats = pfpStats_t();
        (void)pfp_get_stats(*this, &stats);
        return stats;
    }

    /* What its regions had of each amount; see pfp_get_amounts(). */
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

/* The timer of pfp.h. */
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

/* The point of a name that is made as the program runs: its name is copied. To be
 * asked for once and kept. */
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

/*
 * pfp: profile points for C and C++.
 *
 * Mark a region with begin and end, and learn how many CPU cycles it takes itself,
 * live, with nested regions, pre-emption and blocking taken out. Run `pfp-top`
 * beside the program to watch its points, to switch them on and off, and to save
 * their figures.
 *
 *     #include <pfp.h>
 *
 *     int parse(const char *line)
 *     {
 *         PFP_SCOPE("parse");
 *         ...
 *     }
 *
 * Link with `pkg-config --cflags --libs pfp`, or in CMake with
 * `find_package(pfp)` and `target_link_libraries(app pfp::pfp)`.
 *
 * What is measured. All figures are ticks of the processor's time-stamp counter;
 * pfp_ticks_per_second() converts. Of each region, per point and thread:
 *   - exclusive: ticks on a CPU between begin and end, minus the regions nested in
 *     it, minus the calibrated cost of measuring;
 *   - inclusive: the same with the nested regions; recursion counted once. What is
 *     called and has no region, or one that is off, belongs to the region around it,
 *     in both figures;
 *   - off-CPU: the ticks in which the thread was blocked or pre-empted, or its task
 *     put aside;
 *   - count, switches, least, most, last, an exponential average where asked for,
 *     and a histogram.
 *
 * Manners. The library starts no thread, installs no signal handler, prints
 * nothing and never aborts. Functions return PFP_OK or one of the negative values
 * below; what is refused is also counted, where the viewer shows it. Functions may
 * be called from any thread, and leave errno as it is. In signal handlers: begin and
 * end, scopes, pfp_point(), the hooks for Begin, End, Ready and Switch, enable,
 * disable and reset, once the thread has measured something outside one. A forked
 * child gets a segment of its own.
 *
 * Environment: PFP_DEFAULT=off lets points of PFP_SCOPE and pfp_point() start
 * switched off; PFP_ENABLE='parse*,io_?' switches on by name in any case.
 * PFP_SNAPSHOT=FILE writes a snapshot when the program ends in order, never over
 * another file; %p in the name is the process's id.
 *
 * Compiled out. With PFP_DISABLE defined before this header is included, all of it
 * compiles to nothing, and the program need not be linked with pfp. Objects with
 * and without it can be linked together.
 *
 * C99 with what GCC and Clang share (inline atomics, the cleanup attribute), and
 * C++11. Linux, 64 bits.
 */
#ifndef PFP_H
#define PFP_H

#include <stdint.h>

#if !defined(PFP_DISABLE) && UINTPTR_MAX < UINT64_MAX
#error "pfp measures on 64-bit targets; define PFP_DISABLE to leave it out on this one"
#endif

/* ---- what a call comes to -------------------------------------------------- */

/* Done. A point that is switched off is no error. */
#define PFP_OK 0
/* pfpCreate() was not called before. */
#define PFP_ENOTCREATED (-1)
/* A point number that is not in 0 .. PFP_ID_COUNT - 1. */
#define PFP_EID (-2)
/* NULL where a pointer was expected. */
#define PFP_ENULL (-3)
/* A weight that is not in (0, 1]. */
#define PFP_EALPHA (-4)
/* A handle that was not created, is of another kind, or does not fit: it runs
 * already, here or on another thread, or it does not run and was to end. */
#define PFP_EHANDLE (-5)
/* PFP_OBJECTS handles are in use. */
#define PFP_EFULL (-6)
/* No shared memory to measure in: /dev/shm is full or missing. */
#define PFP_ENOSPACE (-7)
/* A lock could not be had in time. */
#define PFP_EBUSY (-8)
/* A file could not be written; errno says why. */
#define PFP_EFILE (-9)

/* Points that are named by a number: 0 .. PFP_ID_COUNT - 1. Number 0 is the
 * calibration's own, and shows the overhead of measuring. */
#define PFP_ID_COUNT 64

/* Tasks, software and hardware interrupts that can be known at a time. */
#define PFP_OBJECTS 1024

/* Statistics of a point since its last reset, over all threads. Ticks of the
 * time-stamp counter where not said otherwise; all 0 before the first measurement. */
typedef struct pfpStats {
    /* Exclusive ticks of all measurements. */
    uint64_t c_total;
    /* Finished measurements. */
    uint64_t n_count;
    /* Least and most exclusive ticks of a measurement. */
    uint64_t c_min;
    uint64_t c_max;
    /* Weight of a new value in c_average, in (0, 1]; 0 while averaging is off. */
    float alpha;
    /* Not 0 if the point is switched on. */
    int32_t enabled;
    /* Exponential average of exclusive ticks, c_average += alpha * (c - c_average)
     * at each measurement; 0 while averaging is off. */
    double c_average;
    /* Mean and sample standard deviation of exclusive ticks. */
    double c_mean;
    double c_deviation;
    /* Exclusive ticks of the last measurement; of several threads, of any. */
    uint64_t c_last;
    /* Ticks with nested regions; recursion counted once. */
    uint64_t c_inclusive;
    /* Ticks between begin and end in which the thread or task did not run. */
    uint64_t c_off_cpu;
    /* Switches noticed between begin and end. */
    uint64_t n_switches;
    /* 0, for what is to come. */
    uint64_t reserved[4];
} pfpStats_t;

/* A timer, see pfp_timer_start(); all zeros is one that was not started. */
typedef struct pfp_timer {
    uint64_t words[10];
} pfp_timer_t;
#define PFP_TIMER_INIT {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}

/* A point that has a name; see pfp_point(). Only its library knows the rest. */
typedef struct pfp_point_of_a_name {
    const uint64_t *word;
} pfp_point_t;

#ifndef PFP_DISABLE

#ifdef __cplusplus
extern "C" {
#endif

/* The text of a status: what was expected, what was found, what to do. Never NULL,
 * and not to be freed. */
const char *pfp_error(int status);

/* ---- points by number: the original interface ------------------------------ */

/* Makes the points. To be called before all others of this section and the next,
 * which return PFP_ENOTCREATED before that. All points but the calibration's are
 * switched off then, and averaging is off. Calling it again does nothing.
 * PFP_ENOSPACE. */
int pfpCreate(void);

/* Measures what measuring costs, over `loopcnt` begins and ends of point 0, and
 * takes it out of all figures from then on. With `reset` the statistics of point 0
 * start afresh. Optional: done once at the start, so this is only for doing it
 * again, on a machine that was busy then. PFP_ENOTCREATED, PFP_ENOSPACE (also while
 * another thread calibrates, or point 0 is switched off). */
int pfpCalibrate(int loopcnt, int reset);

/* Begins the region of a point. `exhandle` is the task or interrupt in which it
 * is, as one of the hooks below has named it, or NULL: whichever runs. Naming one
 * that does not run on this thread measures nothing.
 *
 * A begin after a begin without an end switches the point off as invalid; the
 * viewer says so, and pfpEnable() makes it valid. Regions of different points may
 * be nested. PFP_ENOTCREATED, PFP_EID, PFP_EHANDLE. */
int pfpBegin(int id, void *exhandle);

/* Ends the region of a point. Without a begin it does nothing, so that a loop may
 * start with an end. With `latch` what was measured is kept and added to the
 * point's next measurement: the end that does not latch records the sum as one.
 * Regions that were begun inside and not ended are given up, which is counted as a
 * mismatch. PFP_ENOTCREATED, PFP_EID. */
int pfpEnd(int id, int latch);

/* Switch a point on and off, at any moment; both take effect at the next begin.
 * PFP_ENOTCREATED, PFP_EID. */
int pfpEnable(int id);
int pfpDisable(int id);

/* Fills `stats` with a point's statistics. PFP_ENOTCREATED, PFP_EID, PFP_ENULL. */
int pfpGetStats(int id, pfpStats_t *stats);

/* Starts a point's statistics afresh, at any moment; takes effect at the next
 * begin. PFP_ENOTCREATED, PFP_EID. */
int pfpResetStats(int id);

/* Averages exponentially with this weight of a new value, in (0, 1]. It is the
 * period at which the region runs over the time constant: 100 ms over 500 ms is
 * 0.2. PFP_ENOTCREATED, PFP_EID, PFP_EALPHA. */
int pfpSetAlpha(int id, float alpha);

/* The same from the two, in milliseconds or any other unit that both have.
 * PFP_ENOTCREATED, PFP_EID, PFP_EALPHA. */
int pfpSetAverage(int id, double period, double tau);

/* Averages no longer. PFP_ENOTCREATED, PFP_EID. */
int pfpClearAlpha(int id);

/* Names a point as the viewer shows it. PFP_ENOTCREATED, PFP_EID, PFP_ENULL. */
int pfpSetName(int id, const char *name);

/* ---- hooks for user-level schedulers --------------------------------------- */

/*
 * A program that runs tasks of its own on its threads (fibres, coroutines, an
 * emulated RTOS) tells pfp which one runs. The open regions of a task stop when it
 * is put aside and go on when it runs again, also on another thread; meanwhile its
 * time counts as off-CPU. A thread that runs no task has a context of its own,
 * which NULL names.
 *
 * Handles are whatever pointers the program has for its objects; pfp never looks
 * behind them. Signals are blocked for the length of a Switch, Begin or End, which
 * costs two system calls. All hooks: PFP_ENOTCREATED, PFP_ENULL, PFP_EHANDLE.
 */

/* For hook tables that have an entry for it; `hookset` is not used. */
int pfpTaskRegister(int hookset);
int pfpSwiRegister(int hookset);
int pfpHwiRegister(int hookset);

/* A task, software interrupt or hardware interrupt (a signal handler, here) comes
 * to be. One that is known stays as it is. Not in signal handlers. PFP_EFULL,
 * PFP_EBUSY. */
int pfpTaskCreate(void *task);
int pfpSwiCreate(void *swi);
int pfpHwiCreate(void *hwi);

/* It is no more: what it had open is not measured, and its handle can be used for
 * another one. It must not be running, nor interrupted. Not in signal handlers.
 * PFP_EBUSY. */
int pfpTaskDelete(void *task);
int pfpSwiDelete(void *swi);
int pfpHwiDelete(void *hwi);

/* It is ready to run. Checks the handle; no figure depends on it. */
int pfpTaskReady(void *task);
int pfpSwiReady(void *swi);
int pfpHwiReady(void *hwi);

/* The calling thread's scheduler switches from one task to another; NULL is the
 * scheduler itself. If another one than `prev` ran, that is counted as a mismatch,
 * and `next` runs all the same. To be called just before or after the stacks are
 * switched, on the thread that does it. In an interrupt it takes effect when the
 * outermost one ends. A task that is switched away from in a signal handler must go
 * on on the same thread: it may have been in the middle of a begin or end. */
int pfpTaskSwitch(void *prev, void *next);

/* An interrupt's handler begins: whatever runs is put aside for it until its end.
 * Interrupts nest, each in another one. */
int pfpSwiBegin(void *swi);
int pfpSwiEnd(void *swi);
int pfpHwiBegin(void *hwi);
int pfpHwiEnd(void *hwi);

/* ---- points by name -------------------------------------------------------- */

/*
 *     PFP_SCOPE("name");
 *
 * measures from here to the end of the block; in C++ by a destructor, in C by the
 * cleanup attribute. The name is a string literal. Leaving the block by return,
 * break, goto or a C++ exception ends the region; longjmp() does not, and the next
 * end outside it gives the region up.
 *
 *     PFP_FUNCTION();
 *
 * is the same under the name of the function.
 *
 *     PFP_SCOPE_OF(point);
 *
 * measures under a point that pfp_point() has given.
 *
 *     PFP_METERED("triad", n * 24, n * 2);
 *     PFP_AMOUNTS("handle", "requests,bytes", count, size);
 *
 * are PFP_SCOPE with what the region does: bytes and floating-point operations, or one
 * to four amounts of any names. They are kept as uint64_t, what is negative as 0, and
 * evaluated once if the point is on. The viewer shows them by the second, and tells
 * up to eight different tuples of a point's amounts apart.
 *
 *     PFP_AMOUNTS_OF(point, count, size);
 *
 * is the same under a point that pfp_point_amounts() has given: one that is steered, and
 * whose statistics are asked for, by the program itself.
 *
 * Each of them can stand once in a line.
 */

/* The point of a name that is not known when compiling. Points of the same name
 * and place are one. `file` may be NULL if the place is not known. The point stays
 * for as long as the process runs; ask once, and keep it: asking takes a search. NULL
 * if `name` is NULL, at about 100,000 names, or without memory. */
pfp_point_t *pfp_point(const char *name, const char *file, unsigned line);

/* The same for a point whose regions have amounts: their names, one to four, with commas
 * between them. NULL also if there are more. */
pfp_point_t *pfp_point_amounts(const char *name, const char *file, unsigned line,
                               const char *amounts);

/* Ends a region of such a point with its amounts, `count` of them in the order of their
 * names: what was received, say, is known only then. pfp_end() ends it with none. Of
 * latched parts the amounts are added too. PFP_ENULL, PFP_EHANDLE for a point that
 * pfp_point() has given. */
int pfp_end_amounts(pfp_point_t *point, int latch, const uint64_t *amounts, unsigned count);

/* Fills `sums` with what all regions of such a point since its last reset had of each
 * amount, over all threads: `count` of them in the order of their names, 0 where there
 * is no such name. More than 64 bits hold is told as UINT64_MAX. pfp_get_stats() tells
 * how many regions there were and how long they took. PFP_ENULL, PFP_EHANDLE for a point
 * that pfp_point() has given. */
int pfp_get_amounts(pfp_point_t *point, uint64_t *sums, unsigned count);

/* As those by number do it, except that a point may be begun again inside itself,
 * and that points are switched on from the start. 4,095 regions may be open at a time in a
 * thread, and 1,024 in a task; one more gives up all of them, which is counted as a mismatch.
 * Inclusive ticks count recursion once; not of a point with amounts, where a scope
 * is inside a region of this kind. PFP_ENULL. */
int pfp_begin(pfp_point_t *point);
int pfp_end(pfp_point_t *point, int latch);
int pfp_enable(pfp_point_t *point);
int pfp_disable(pfp_point_t *point);
int pfp_get_stats(pfp_point_t *point, pfpStats_t *stats);
int pfp_reset(pfp_point_t *point);
/* PFP_EALPHA as well. */
int pfp_set_alpha(pfp_point_t *point, double alpha);
int pfp_clear_alpha(pfp_point_t *point);
/* Has the point's stamps wait for the work before them, or not: a short region that
 * waits for memory is measured too short otherwise, and the one around it too long. It
 * costs some 50 ns a region, which are taken out of the figures. PFP_FENCE=1 in the
 * environment fences all points. */
int pfp_set_fenced(pfp_point_t *point, int fenced);

/* ---- the program ----------------------------------------------------------- */

/* Makes the segment now instead of at the first region: for a program whose first
 * region might be in a signal handler. PFP_ENOSPACE. */
int pfp_init(void);

/* Names the program as the viewer shows it; the executable's name otherwise.
 * PFP_ENULL. */
int pfp_set_program_name(const char *name);

/* Names the calling thread as the viewer shows it, up to 32 bytes; the thread's
 * name in the kernel otherwise. Also allocates all memory for the thread's records,
 * 64 KiB, before the thread enters a sandbox. PFP_ENULL. */
int pfp_register_thread(const char *name);

/* Writes the figures of this process to a file, which was not there, for
 * `pfp-top open` and `pfp-top diff`: whole or not at all. The other one replaces a
 * file that is there. Not in signal handlers. PFP_ENULL, PFP_ENOSPACE, PFP_EFILE
 * with errno, which is EEXIST for a file that is there. */
int pfp_snapshot_to(const char *path);
int pfp_snapshot_over(const char *path);

/* Writes the figures of this process to a file descriptor, as a line of JSON: an array
 * of threads, of each an object with an array for each label, of each tuple of amounts
 * an object with Bytes, Flops and Calls, and Min, Max, Avg and Stddev of a call's
 * exclusive time in seconds. Not in signal handlers. PFP_ENOSPACE, PFP_EFILE with
 * errno. */
int pfpShow(int fd);

/* Switches all measuring off, and on again: those points that this has switched off.
 * Takes effect at each point's next begin. */
void pfp_set_enabled(int on);

/* The time-stamp counter. */
uint64_t pfp_ticks(void);

/* Its ticks in a second: more exactly the longer the program runs. */
double pfp_ticks_per_second(void);

/* The calling thread's or task's on-CPU clock: ticks that it has run. Only
 * differences mean anything. 0 where there is none. */
uint64_t pfp_on_cpu_ticks(void);

/* ---- a timer --------------------------------------------------------------- */

/*
 *     pfp_timer_t timer = PFP_TIMER_INIT;
 *     pfp_timer_start(&timer);
 *     ...
 *     double so_far = pfp_timer_elapsed_ms(&timer);
 *     ...
 *     pfp_timer_stop(&timer);
 *
 * is no point, needs no segment, and belongs to one thread at a time.
 */

/* Start the timer, anew if it ran before, and stop it; one that does not run stays as
 * it is. PFP_ENULL. */
int pfp_timer_start(pfp_timer_t *timer);
int pfp_timer_stop(pfp_timer_t *timer);

/* Milliseconds of the wall clock (CLOCK_MONOTONIC) since the start: until the stop, or
 * until now while it runs, as often as one asks. 0 before the first start. */
double pfp_timer_elapsed_ms(const pfp_timer_t *timer);

/* Milliseconds that the calling thread was on a CPU meanwhile. -1 before the first
 * start, or if another thread started or stopped it: each has a clock of its own. */
double pfp_timer_on_cpu_ms(const pfp_timer_t *timer);

/* The library's version, "0.1.0". */
const char *pfp_version(void);

/* ---- every function, without touching the source ----------------------------- */

/* Compiled with -finstrument-functions, every function calls these two, and has a
 * point of its name from its first call on. The points start off: switch them on in
 * the viewer, or by PFP_ENABLE='parse*' in the environment. Programs that are not
 * linked with the library get it by LD_PRELOAD; `pfp-top run` sees to that. Names of
 * C++ are as the linker has them: PFP_ENABLE='*parse*' finds them.
 *
 * What was left by longjmp ends when its caller next begins or ends a function.
 * Fibres should be announced by the hooks for tasks above, run on stacks that are
 * not inside a thread's own, and stay on their thread. */
void __cyg_profile_func_enter(void *function, void *call_site);
void __cyg_profile_func_exit(void *function, void *call_site);

/* ---- what the macros are made of; not to be used by themselves --------------- */

/* A place in the source. */
typedef struct pfp_site {
    const pfp_point_t *point;
    const char *name;
    const char *file;
    unsigned line;
} pfp_site_t;

/* A region that is open. */
typedef struct pfp_scope {
    uint64_t tag;
} pfp_scope_t;

/* A place in the source with amounts, whose names have commas between them. */
typedef struct pfp_metered_site {
    const pfp_point_t *point;
    const char *name;
    const char *file;
    const char *amounts;
    unsigned line;
} pfp_metered_site_t;

/* A region with amounts that is open. */
typedef struct pfp_metered {
    uint64_t tag;
    uint64_t amounts[4];
} pfp_metered_t;

void pfp_metered_begin_site(pfp_metered_t *scope, pfp_metered_site_t *site);
void pfp_metered_begin_point(pfp_metered_t *scope, pfp_point_t *point);
void pfp_metered_end_on(pfp_metered_t *scope);
void pfp_scope_begin_site(pfp_scope_t *scope, pfp_site_t *site);
void pfp_scope_begin_point(pfp_scope_t *scope, pfp_point_t *point);
void pfp_scope_end_on(pfp_scope_t *scope);

#ifdef __cplusplus
}
#endif

#define PFP_INLINE_ static inline __attribute__((always_inline, unused))

#ifdef __cplusplus
#define PFP_AS_(type, x) static_cast<type>(x)
#define PFP_ASSERT_(what, text) static_assert(what, text)
#else
#define PFP_AS_(type, x) ((type)(x))
#define PFP_ASSERT_(what, text) __extension__ _Static_assert(what, text)
#endif

/* What a site points to before it is registered: a word that reads as "on", so
 * that this needs no test of its own. */
static const uint64_t pfp_unregistered_word_ __attribute__((unused)) = UINT64_MAX;
static const pfp_point_t pfp_unregistered_ __attribute__((unused)) = {
    &pfp_unregistered_word_};

/* ThreadSanitizer sees what stands here and nothing of the library, so it would
 * miss what orders the two: under it the library looks by itself. */
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define PFP_LOOKS_INSIDE_
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define PFP_LOOKS_INSIDE_
#endif

PFP_INLINE_ int pfp_is_on_(const pfp_point_t *point)
{
#ifdef PFP_LOOKS_INSIDE_
    (void)point;
    return 1;
#else
    const uint64_t *word = __atomic_load_n(&point->word, __ATOMIC_RELAXED);
    return (__atomic_load_n(word, __ATOMIC_RELAXED) & 1) != 0;
#endif
}

PFP_INLINE_ void pfp_scope_begin_(pfp_scope_t *scope, pfp_site_t *site)
{
    if (pfp_is_on_(__atomic_load_n(&site->point, __ATOMIC_ACQUIRE)))
        pfp_scope_begin_site(scope, site);
    else
        scope->tag = 0;
}

PFP_INLINE_ void pfp_scope_begin_of_(pfp_scope_t *scope, pfp_point_t *point)
{
    if (point && pfp_is_on_(point))
        pfp_scope_begin_point(scope, point);
    else
        scope->tag = 0;
}

PFP_INLINE_ void pfp_scope_end_(pfp_scope_t *scope)
{
    if (scope->tag)
        pfp_scope_end_on(scope);
}

PFP_INLINE_ int pfp_metered_is_on_(pfp_metered_t *scope, pfp_metered_site_t *site)
{
    scope->tag = 0;
    return pfp_is_on_(__atomic_load_n(&site->point, __ATOMIC_ACQUIRE));
}

PFP_INLINE_ void pfp_metered_begin_(pfp_metered_t *scope, pfp_metered_site_t *site, uint64_t a,
                                    uint64_t b, uint64_t c, uint64_t d)
{
    scope->amounts[0] = a;
    scope->amounts[1] = b;
    scope->amounts[2] = c;
    scope->amounts[3] = d;
    pfp_metered_begin_site(scope, site);
}

PFP_INLINE_ int pfp_metered_of_is_on_(pfp_metered_t *scope, const pfp_point_t *point)
{
    scope->tag = 0;
    return point && pfp_is_on_(point);
}

PFP_INLINE_ void pfp_metered_begin_of_(pfp_metered_t *scope, pfp_point_t *point, uint64_t a,
                                       uint64_t b, uint64_t c, uint64_t d)
{
    scope->amounts[0] = a;
    scope->amounts[1] = b;
    scope->amounts[2] = c;
    scope->amounts[3] = d;
    pfp_metered_begin_point(scope, point);
}

PFP_INLINE_ void pfp_metered_end_(pfp_metered_t *scope)
{
    if (scope->tag)
        pfp_metered_end_on(scope);
}

/* Amounts as they are kept: no number and what is negative as 0, too much as the most. */
PFP_INLINE_ uint64_t pfp_amount_of_real_(double x)
{
    return x >= 18446744073709551616.0 ? UINT64_MAX : x > 0 ? PFP_AS_(uint64_t, x) : 0;
}

#define PFP_JOIN_(a, b) PFP_JOIN_NOW_(a, b)
#define PFP_JOIN_NOW_(a, b) a##b
#define PFP_SITE_(var, name)                                                         \
    static pfp_site_t var = {&pfp_unregistered_, name, __FILE__, __LINE__}

#ifdef __cplusplus

namespace pfp {
/* A region from here to the end of the block. */
class scope {
public:
    explicit inline __attribute__((always_inline)) scope(pfp_site_t &site)
    {
        pfp_scope_begin_(&scope_, &site);
    }
    explicit inline __attribute__((always_inline)) scope(pfp_point_t *point)
    {
        pfp_scope_begin_of_(&scope_, point);
    }
    inline __attribute__((always_inline)) ~scope() { pfp_scope_end_(&scope_); }

private:
    scope(const scope &);
    scope &operator=(const scope &);
    pfp_scope_t scope_;
};

/* The same with amounts, which are put in afterwards. */
class metered {
public:
    inline __attribute__((always_inline)) metered() {}
    inline __attribute__((always_inline)) ~metered() { pfp_metered_end_(&scope_); }
    inline __attribute__((always_inline)) pfp_metered_t *in() { return &scope_; }

private:
    metered(const metered &);
    metered &operator=(const metered &);
    pfp_metered_t scope_;
};

inline uint64_t amount_(float x) { return pfp_amount_of_real_(static_cast<double>(x)); }
inline uint64_t amount_(double x) { return pfp_amount_of_real_(x); }
inline uint64_t amount_(long double x) { return pfp_amount_of_real_(static_cast<double>(x)); }
template <class T> inline __attribute__((always_inline)) uint64_t amount_(T x)
{
    return x > 0 ? static_cast<uint64_t>(x) : 0;
}
} // namespace pfp

#define PFP_AMOUNT_(x) pfp::amount_((x) + 0)
#define PFP_METERED_VAR_(var) pfp::metered var
#define PFP_METERED_IN_(var) var.in()

#define PFP_SCOPE_AT_(site, var, name)                                             \
    PFP_SITE_(site, name);                                                           \
    pfp::scope var(site)
#define PFP_SCOPE_OF_AT_(var, point) pfp::scope var(point)

#else

#define PFP_SCOPE_AT_(site, var, name)                                             \
    PFP_SITE_(site, name);                                                           \
    pfp_scope_t var __attribute__((cleanup(pfp_scope_end_)));                        \
    pfp_scope_begin_(&var, &site)
#define PFP_AMOUNT_(x)                                                               \
    (__extension__({                                                                 \
        __auto_type pfp_amount_ = (x) + 0;                                           \
        (__typeof__(pfp_amount_))1 / 2 > 0  ? pfp_amount_of_real_((double)pfp_amount_) \
        : pfp_amount_ > 0                   ? (uint64_t)pfp_amount_                    \
                                            : 0;                                       \
    }))
#define PFP_METERED_VAR_(var)                                                          \
    pfp_metered_t var __attribute__((cleanup(pfp_metered_end_)))
#define PFP_METERED_IN_(var) (&var)
#define PFP_SCOPE_OF_AT_(var, point)                                               \
    pfp_scope_t var __attribute__((cleanup(pfp_scope_end_)));                        \
    pfp_scope_begin_of_(&var, point)

#endif

#define PFP_HERE_(prefix) PFP_JOIN_(prefix, __LINE__)
#define PFP_SCOPE(name)                                                              \
    PFP_SCOPE_AT_(PFP_HERE_(pfp_site_), PFP_HERE_(pfp_scope_), "" name)
#define PFP_METERED_AT_(site, var, name, names, a, b, c, d)                                 \
    static pfp_metered_site_t site = {&pfp_unregistered_, name, __FILE__, names, __LINE__}; \
    PFP_METERED_VAR_(var);                                                                  \
    if (pfp_metered_is_on_(PFP_METERED_IN_(var), &site))                                    \
    pfp_metered_begin_(PFP_METERED_IN_(var), &site, PFP_AMOUNT_(a), PFP_AMOUNT_(b),         \
                       PFP_AMOUNT_(c), PFP_AMOUNT_(d))
#define PFP_METERED_OF_AT_(of, var, of_point, a, b, c, d)                               \
    pfp_point_t *const of = of_point;                                                   \
    PFP_METERED_VAR_(var);                                                              \
    if (pfp_metered_of_is_on_(PFP_METERED_IN_(var), of))                                \
    pfp_metered_begin_of_(PFP_METERED_IN_(var), of, PFP_AMOUNT_(a), PFP_AMOUNT_(b),     \
                          PFP_AMOUNT_(c), PFP_AMOUNT_(d))
/* How many they are, up to eight. */
#define PFP_COUNT_(...) PFP_NINTH_(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define PFP_NINTH_(a, b, c, d, e, f, g, h, i, ...) i
#define PFP_AT_MOST_FOUR_(...)                                                       \
    PFP_ASSERT_(PFP_COUNT_(__VA_ARGS__) <= 4, "a region has at most four amounts")
/* Fill up to four. */
#define PFP_METERED_OF_(site, var, name, names, a, b, c, d, ...)                       \
    PFP_METERED_AT_(site, var, name, names, a, b, c, d)
#define PFP_METERED_OF_POINT_(of, var, point, a, b, c, d, ...)                         \
    PFP_METERED_OF_AT_(of, var, point, a, b, c, d)
#define PFP_AMOUNTS(name, names, ...)                                                         \
    PFP_AT_MOST_FOUR_(__VA_ARGS__);                                                           \
    PFP_METERED_OF_(PFP_HERE_(pfp_metered_site_), PFP_HERE_(pfp_metered_), "" name, "" names, \
                    __VA_ARGS__, 0, 0, 0, 0, 0)
#define PFP_AMOUNTS_OF(point, ...)                                                          \
    PFP_AT_MOST_FOUR_(__VA_ARGS__);                                                         \
    PFP_METERED_OF_POINT_(PFP_HERE_(pfp_metered_point_), PFP_HERE_(pfp_metered_of_), point, \
                          __VA_ARGS__, 0, 0, 0, 0, 0)
#define PFP_METERED(name, bytes, flops) PFP_AMOUNTS(name, "bytes,flops", bytes, flops)
#define PFP_SCOPE_OF(point) PFP_SCOPE_OF_AT_(PFP_HERE_(pfp_scope_of_), point)
#define PFP_FUNCTION()                                                               \
    PFP_SCOPE_AT_(PFP_HERE_(pfp_site_of_), PFP_HERE_(pfp_function_), __func__)

#else /* PFP_DISABLE */

#define PFP_NOTHING_ static inline __attribute__((always_inline, unused))

PFP_NOTHING_ const char *pfp_error(int status) { return (void)status, ""; }

PFP_NOTHING_ int pfpCreate(void) { return PFP_OK; }
PFP_NOTHING_ int pfpCalibrate(int loopcnt, int reset)
{
    return (void)loopcnt, (void)reset, PFP_OK;
}
PFP_NOTHING_ int pfpBegin(int id, void *exhandle) { return (void)id, (void)exhandle, PFP_OK; }
PFP_NOTHING_ int pfpEnd(int id, int latch) { return (void)id, (void)latch, PFP_OK; }
PFP_NOTHING_ int pfpEnable(int id) { return (void)id, PFP_OK; }
PFP_NOTHING_ int pfpDisable(int id) { return (void)id, PFP_OK; }
PFP_NOTHING_ int pfpGetStats(int id, pfpStats_t *stats)
{
    static const pfpStats_t none = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0}};
    if (stats)
        *stats = none;
    return (void)id, stats ? PFP_OK : PFP_ENULL;
}
PFP_NOTHING_ int pfpResetStats(int id) { return (void)id, PFP_OK; }
PFP_NOTHING_ int pfpSetAlpha(int id, float alpha) { return (void)id, (void)alpha, PFP_OK; }
PFP_NOTHING_ int pfpSetAverage(int id, double period, double tau)
{
    return (void)id, (void)period, (void)tau, PFP_OK;
}
PFP_NOTHING_ int pfpClearAlpha(int id) { return (void)id, PFP_OK; }
PFP_NOTHING_ int pfpSetName(int id, const char *name) { return (void)id, (void)name, PFP_OK; }

PFP_NOTHING_ int pfpTaskRegister(int hookset) { return (void)hookset, PFP_OK; }
PFP_NOTHING_ int pfpTaskCreate(void *task) { return (void)task, PFP_OK; }
PFP_NOTHING_ int pfpTaskDelete(void *task) { return (void)task, PFP_OK; }
PFP_NOTHING_ int pfpTaskReady(void *task) { return (void)task, PFP_OK; }
PFP_NOTHING_ int pfpTaskSwitch(void *prev, void *next)
{
    return (void)prev, (void)next, PFP_OK;
}
PFP_NOTHING_ int pfpSwiRegister(int hookset) { return (void)hookset, PFP_OK; }
PFP_NOTHING_ int pfpSwiCreate(void *swi) { return (void)swi, PFP_OK; }
PFP_NOTHING_ int pfpSwiDelete(void *swi) { return (void)swi, PFP_OK; }
PFP_NOTHING_ int pfpSwiReady(void *swi) { return (void)swi, PFP_OK; }
PFP_NOTHING_ int pfpSwiBegin(void *swi) { return (void)swi, PFP_OK; }
PFP_NOTHING_ int pfpSwiEnd(void *swi) { return (void)swi, PFP_OK; }
PFP_NOTHING_ int pfpHwiRegister(int hookset) { return (void)hookset, PFP_OK; }
PFP_NOTHING_ int pfpHwiCreate(void *hwi) { return (void)hwi, PFP_OK; }
PFP_NOTHING_ int pfpHwiDelete(void *hwi) { return (void)hwi, PFP_OK; }
PFP_NOTHING_ int pfpHwiReady(void *hwi) { return (void)hwi, PFP_OK; }
PFP_NOTHING_ int pfpHwiBegin(void *hwi) { return (void)hwi, PFP_OK; }
PFP_NOTHING_ int pfpHwiEnd(void *hwi) { return (void)hwi, PFP_OK; }

PFP_NOTHING_ int pfp_timer_start(pfp_timer_t *timer) { return timer ? PFP_OK : PFP_ENULL; }
PFP_NOTHING_ int pfp_timer_stop(pfp_timer_t *timer) { return timer ? PFP_OK : PFP_ENULL; }
PFP_NOTHING_ double pfp_timer_elapsed_ms(const pfp_timer_t *timer) { return (void)timer, 0.0; }
PFP_NOTHING_ double pfp_timer_on_cpu_ms(const pfp_timer_t *timer) { return (void)timer, -1.0; }

PFP_NOTHING_ pfp_point_t *pfp_point(const char *name, const char *file, unsigned line)
{
    /* NULL, in words that neither language's compilers warn of. */
    static pfp_point_t *none;
    return (void)name, (void)file, (void)line, none;
}
PFP_NOTHING_ pfp_point_t *pfp_point_amounts(const char *name, const char *file, unsigned line,
                                            const char *amounts)
{
    return (void)amounts, pfp_point(name, file, line);
}
PFP_NOTHING_ int pfp_end_amounts(pfp_point_t *point, int latch, const uint64_t *amounts,
                                 unsigned count)
{
    return (void)point, (void)latch, (void)amounts, (void)count, PFP_OK;
}
PFP_NOTHING_ int pfp_get_amounts(pfp_point_t *point, uint64_t *sums, unsigned count)
{
    unsigned at;
    for (at = 0; sums && at < count; at++)
        sums[at] = 0;
    return (void)point, sums ? PFP_OK : PFP_ENULL;
}
PFP_NOTHING_ int pfp_begin(pfp_point_t *point) { return (void)point, PFP_OK; }
PFP_NOTHING_ int pfp_enable(pfp_point_t *point) { return (void)point, PFP_OK; }
PFP_NOTHING_ int pfp_disable(pfp_point_t *point) { return (void)point, PFP_OK; }
PFP_NOTHING_ int pfp_reset(pfp_point_t *point) { return (void)point, PFP_OK; }
PFP_NOTHING_ int pfp_clear_alpha(pfp_point_t *point) { return (void)point, PFP_OK; }
PFP_NOTHING_ int pfp_end(pfp_point_t *point, int latch)
{
    return (void)point, (void)latch, PFP_OK;
}
PFP_NOTHING_ int pfp_get_stats(pfp_point_t *point, pfpStats_t *stats)
{
    return (void)point, pfpGetStats(0, stats);
}
PFP_NOTHING_ int pfp_set_fenced(pfp_point_t *point, int fenced)
{
    return (void)point, (void)fenced, PFP_OK;
}
PFP_NOTHING_ int pfp_set_alpha(pfp_point_t *point, double alpha)
{
    return (void)point, (void)alpha, PFP_OK;
}

PFP_NOTHING_ int pfp_init(void) { return PFP_OK; }
PFP_NOTHING_ int pfp_set_program_name(const char *name) { return (void)name, PFP_OK; }
PFP_NOTHING_ int pfp_register_thread(const char *name) { return (void)name, PFP_OK; }
PFP_NOTHING_ int pfp_snapshot_to(const char *path)
{
    return path ? PFP_ENOSPACE : PFP_ENULL;
}
PFP_NOTHING_ int pfp_snapshot_over(const char *path) { return pfp_snapshot_to(path); }
PFP_NOTHING_ int pfpShow(int fd) { return (void)fd, PFP_ENOSPACE; }
PFP_NOTHING_ void pfp_set_enabled(int on) { (void)on; }
PFP_NOTHING_ uint64_t pfp_ticks(void) { return 0; }
PFP_NOTHING_ double pfp_ticks_per_second(void) { return 1e9; }
PFP_NOTHING_ uint64_t pfp_on_cpu_ticks(void) { return 0; }
PFP_NOTHING_ const char *pfp_version(void) { return ""; }

#define PFP_SCOPE(name) ((void)0)
#define PFP_SCOPE_OF(point) ((void)(point))
#define PFP_FUNCTION() ((void)0)
/* Seen, so that nothing is unused, and not evaluated. */
#define PFP_SEEN_(a, b, c, d, ...)                                                   \
    ((void)sizeof((a) + 0), (void)sizeof((b) + 0), (void)sizeof((c) + 0),            \
     (void)sizeof((d) + 0))
#define PFP_AMOUNTS(name, names, ...) PFP_SEEN_(__VA_ARGS__, 0, 0, 0, 0, 0)
#define PFP_AMOUNTS_OF(point, ...) ((void)(point), PFP_AMOUNTS("", "", __VA_ARGS__))
#define PFP_METERED(name, bytes, flops) PFP_AMOUNTS(name, "bytes,flops", bytes, flops)

#endif /* PFP_DISABLE */

#endif /* PFP_H */

/*
 * pfp: profile points for C and C++.
 *
 * Mark a region with begin and end, and see how many CPU cycles it takes, live, without
 * nested regions, pre-emption and blocking. Run `pfp-top` beside the program to watch its
 * points, to switch them on and off, and to save their figures.
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
 * Figures. Times are ticks of the processor's time-stamp counter; pfp_ticks_per_second()
 * converts them. Each thread records for each point:
 *   - exclusive: ticks on a CPU between begin and end, minus nested regions, minus the
 *     calibrated cost of measuring;
 *   - inclusive: ticks on a CPU including nested regions; recursion counts once. Code
 *     without an enabled region counts towards the enclosing region, in both figures;
 *   - off-CPU: ticks in which the thread was blocked or pre-empted, or its task was
 *     suspended;
 *   - count, switches, minimum, maximum, last value, a histogram, and on request an
 *     exponential average.
 *
 * Rules. The library starts no thread, installs no signal handler, prints nothing and
 * never aborts. Functions return PFP_OK or one of the negative values below; the comment of
 * a function ends with the errors that it can return. Refused calls are also counted, and
 * the viewer shows the count. Functions may be called from any thread, and preserve errno
 * unless they return PFP_EFILE. Signal handlers may use begin and end, scopes, pfp_point(),
 * the hooks for Begin, End, Ready and Switch, enable, disable and reset, once the thread
 * has measured something outside a handler. A forked child gets its own segment.
 *
 * Environment. With PFP_DEFAULT=off, points of PFP_SCOPE and pfp_point() start switched
 * off. PFP_ENABLE='parse*,io_?' switches points on by name, whatever the default.
 * PFP_SNAPSHOT=FILE writes a snapshot when the program ends normally, but never replaces
 * an existing file; %p in the name becomes the process's id.
 *
 * Compiled out. If PFP_DISABLE is defined before this header is included, all of it
 * compiles to nothing, and the program need not be linked with pfp. Objects compiled with
 * and without it can be linked together.
 *
 * Requires C99 with extensions of GCC and Clang (atomics, the cleanup attribute), or
 * C++11, on 64-bit Linux.
 */
#ifndef PFP_H
#define PFP_H

#include <stddef.h>
#include <stdint.h>

#if !defined(PFP_DISABLE) && UINTPTR_MAX < UINT64_MAX
#error "pfp measures on 64-bit targets; define PFP_DISABLE to leave it out on this one"
#endif

/* ---- status codes ---------------------------------------------------------- */

/* Success. Also returned if the point is switched off. */
#define PFP_OK 0
/* pfpCreate() was not called. */
#define PFP_ENOTCREATED (-1)
/* The point number is not in 0 .. PFP_ID_COUNT - 1. */
#define PFP_EID (-2)
/* NULL where a pointer was expected. */
#define PFP_ENULL (-3)
/* The weight is not in (0, 1]. */
#define PFP_EALPHA (-4)
/* The handle was not created, is of another kind, or is in the wrong state: its object
 * already runs, here or on another thread, or an end was called although the object does
 * not run. Also returned for a point without amounts where one with amounts is expected. */
#define PFP_EHANDLE (-5)
/* All PFP_OBJECTS handles are in use. */
#define PFP_EFULL (-6)
/* No shared memory: /dev/shm is full or missing. */
#define PFP_ENOSPACE (-7)
/* A lock was not available in time. */
#define PFP_EBUSY (-8)
/* The file could not be written; see errno. */
#define PFP_EFILE (-9)

/* Number of points that are identified by a number: 0 .. PFP_ID_COUNT - 1. Number 0 is
 * used for calibration, and shows the overhead of measuring. */
#define PFP_ID_COUNT 64

/* Maximum number of tasks and interrupts that are registered at the same time. */
#define PFP_OBJECTS 1024

/* Statistics of a point since its last reset, over all threads. The unit is ticks of the
 * time-stamp counter unless stated otherwise. All 0 before the first measurement. */
typedef struct pfpStats {
    /* Exclusive ticks of all measurements. */
    uint64_t c_total;
    /* Number of finished measurements. */
    uint64_t n_count;
    /* Minimum and maximum exclusive ticks of a measurement. */
    uint64_t c_min;
    uint64_t c_max;
    /* Weight of a new value in c_average, in (0, 1]; 0 while averaging is off. */
    float alpha;
    /* Nonzero if the point is switched on. */
    int32_t enabled;
    /* Exponential average of exclusive ticks, c_average += alpha * (c - c_average)
     * at each measurement; 0 while averaging is off. */
    double c_average;
    /* Mean and sample standard deviation of exclusive ticks. */
    double c_mean;
    double c_deviation;
    /* Exclusive ticks of the last measurement; with several threads, of the last measurement
     * of one of them. */
    uint64_t c_last;
    /* Ticks including nested regions; recursion counts once. */
    uint64_t c_inclusive;
    /* Ticks between begin and end in which the thread or task did not run. */
    uint64_t c_off_cpu;
    /* Number of switches detected between begin and end. */
    uint64_t n_switches;
    /* Always 0; reserved for extensions. */
    uint64_t reserved[4];
} pfpStats_t;

/* A timer; see pfp_timer_start(). A timer of all zeros was not started. */
typedef struct pfp_timer {
    uint64_t words[10];
} pfp_timer_t;
#define PFP_TIMER_INIT {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}

/* A point with a name; see pfp_point(). Further members are private to the library. */
typedef struct pfp_point_of_a_name {
    const uint64_t *word;
} pfp_point_t;

#ifndef PFP_DISABLE

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a static text for a status: the expectation, the cause of the error, and a
 * remedy. Never NULL; the caller must not free it. */
const char *pfp_error(int status);

/* ---- points by number: the original interface ------------------------------ */

/* Creates the points. Must be called before all other functions of this section and the
 * next, which otherwise return PFP_ENOTCREATED. All points except number 0 are switched
 * off at first, and do not average. Further calls do nothing. PFP_ENOSPACE. */
int pfpCreate(void);

/* Measures the cost of measuring with `loopcnt` begins and ends of point 0. From then on,
 * the cost is subtracted from all figures. If `reset` is nonzero, resets the statistics of
 * point 0. Optional: the library calibrates itself at the start, so this is only needed if
 * the machine was busy then. PFP_ENOTCREATED, PFP_ENOSPACE (also if another thread
 * calibrates, or if point 0 is switched off). */
int pfpCalibrate(int loopcnt, int reset);

/* Begins the region of a point. `exhandle` is the handle of the task or interrupt that
 * runs, as passed to the hooks below. If its object does not run on this thread, nothing is
 * measured. NULL stands for the task or interrupt that runs.
 *
 * A second begin without an end in between makes the point invalid and switches it off.
 * The viewer shows that; pfpEnable() makes the point valid again. Regions of different
 * points may be nested. PFP_ENOTCREATED, PFP_EID, PFP_EHANDLE. */
int pfpBegin(int id, void *exhandle);

/* Ends the region of a point. Does nothing without a begin, so a loop may start with an
 * end. If `latch` is nonzero, the measured ticks are kept and added to the point's next
 * measurement; the next end with a `latch` of 0 records the sum as one measurement. Inner
 * regions that have not ended are discarded, which counts as a mismatch.
 * PFP_ENOTCREATED, PFP_EID. */
int pfpEnd(int id, int latch);

/* Switch a point on or off, at any time. Takes effect at the next begin.
 * PFP_ENOTCREATED, PFP_EID. */
int pfpEnable(int id);
int pfpDisable(int id);

/* Writes a point's statistics to `stats`. PFP_ENOTCREATED, PFP_EID, PFP_ENULL. */
int pfpGetStats(int id, pfpStats_t *stats);

/* Resets a point's statistics, at any time. Takes effect at the next begin.
 * PFP_ENOTCREATED, PFP_EID. */
int pfpResetStats(int id);

/* Switches a point's exponential average on. `alpha` is the weight of a new value, in
 * (0, 1]: the region's period divided by the time constant. A period of 100 ms and a time
 * constant of 500 ms give 0.2. PFP_ENOTCREATED, PFP_EID, PFP_EALPHA. */
int pfpSetAlpha(int id, float alpha);

/* Switches a point's exponential average on, with the weight `period` / `tau`; `tau` is the
 * time constant. Both have the same unit, such as milliseconds. PFP_ENOTCREATED, PFP_EID,
 * PFP_EALPHA. */
int pfpSetAverage(int id, double period, double tau);

/* Switches a point's exponential average off. PFP_ENOTCREATED, PFP_EID. */
int pfpClearAlpha(int id);

/* Sets the name that the viewer shows for a point. PFP_ENOTCREATED, PFP_EID, PFP_ENULL. */
int pfpSetName(int id, const char *name);

/* ---- hooks for user-level schedulers --------------------------------------- */

/*
 * A program that schedules its own tasks on its threads (fibres, coroutines, an emulated
 * RTOS) informs pfp which one runs. The open regions of a task stop when the task is
 * suspended, and continue when it resumes, possibly on another thread; the time in between
 * counts as off-CPU. A thread that runs no task has its own context, whose handle is NULL.
 *
 * A handle is any pointer by which the program identifies its object; pfp never
 * dereferences it. Signals are blocked during a Switch, Begin or End, which costs two
 * system calls. All hooks may return PFP_ENOTCREATED, PFP_ENULL and PFP_EHANDLE.
 */

/* Do nothing; for hook tables that need an entry. `hookset` is ignored. */
int pfpTaskRegister(int hookset);
int pfpSwiRegister(int hookset);
int pfpHwiRegister(int hookset);

/* Register a task, a software interrupt or a hardware interrupt (here, a signal handler).
 * If the object is already registered, nothing changes. Not in signal handlers.
 * PFP_EFULL, PFP_EBUSY, PFP_ENOSPACE. */
int pfpTaskCreate(void *task);
int pfpSwiCreate(void *swi);
int pfpHwiCreate(void *hwi);

/* Delete an object. Its open regions are not measured, and its handle can be used for
 * another object. The object must not be running or interrupted. Not in signal handlers.
 * PFP_EBUSY. */
int pfpTaskDelete(void *task);
int pfpSwiDelete(void *swi);
int pfpHwiDelete(void *hwi);

/* Report that an object is ready to run. Only checks the handle; no figure depends on it. */
int pfpTaskReady(void *task);
int pfpSwiReady(void *swi);
int pfpHwiReady(void *hwi);

/* Reports that the calling thread's scheduler switches from task `prev` to task `next`;
 * NULL is the scheduler itself. If `prev` did not run, that counts as a mismatch, and
 * `next` runs nevertheless. Must be called immediately before or after the switch of
 * stacks, on the thread that switches. In an interrupt, the switch takes effect when the
 * outermost interrupt ends. A task that a signal handler suspends must resume on the same
 * thread, because it may have been interrupted during a begin or end. */
int pfpTaskSwitch(void *prev, void *next);

/* Begin and end an interrupt's handler. In between, the interrupted task, interrupt or
 * thread is suspended. Interrupts can be nested, but not inside themselves. */
int pfpSwiBegin(void *swi);
int pfpSwiEnd(void *swi);
int pfpHwiBegin(void *hwi);
int pfpHwiEnd(void *hwi);

/* ---- points by name -------------------------------------------------------- */

/*
 *     PFP_SCOPE("name");
 *
 * measures from here to the end of the block, by a destructor in C++ and by the cleanup
 * attribute in C. The name is a string literal. Leaving the block by return, break, goto or
 * a C++ exception ends the region. After longjmp(), the next end outside the region
 * discards it.
 *
 *     PFP_FUNCTION();
 *
 * uses the name of the function.
 *
 *     PFP_SCOPE_OF(point);
 *
 * uses a point from pfp_point(). With NULL, nothing is measured.
 *
 *     PFP_METERED("triad", n * 24, n * 2);
 *     PFP_AMOUNTS("handle", "requests,bytes", count, size);
 *
 * are PFP_SCOPE with amounts of work: bytes and floating-point operations, or one to four
 * amounts with any names. Amounts are converted to uint64_t, negative ones to 0, and are
 * evaluated once if the point is on, otherwise not at all. The viewer shows them per
 * second, and distinguishes up to eight different tuples of amounts per point.
 *
 *     PFP_AMOUNTS_OF(point, count, size);
 *
 * uses a point from pfp_point_amounts(), so the program itself can switch the point and
 * read its statistics.
 *
 * Each macro can be used once per source line.
 */

/* Returns the point of a name that is not known at compile time. The same name and place
 * always give the same point. `file` may be NULL if the place is not known. The point
 * exists as long as the process; call once and keep the result, since each call searches.
 * NULL if `name` is NULL, if there are about 100,000 names, or if memory runs out. */
pfp_point_t *pfp_point(const char *name, const char *file, unsigned line);

/* Returns a point whose regions have amounts. `amounts` contains one to four names,
 * separated by commas. NULL if pfp_point() would return NULL, or if `amounts` is NULL,
 * empty, or a list of more than four names. */
pfp_point_t *pfp_point_amounts(const char *name, const char *file, unsigned line,
                               const char *amounts);

/* Ends a region of a point from pfp_point_amounts(), with `count` amounts in the order of
 * their names. Suits amounts that are not known at the begin, such as the size of received
 * data. pfp_end() ends the region with amounts of 0. Amounts of latched parts are added up,
 * too. PFP_ENULL, PFP_EHANDLE for a point from pfp_point(). */
int pfp_end_amounts(pfp_point_t *point, int latch, const uint64_t *amounts, unsigned count);

/* Writes to `sums` the sum of each amount over all regions of a point from
 * pfp_point_amounts() since its last reset, over all threads: `count` sums in the order of
 * the names, 0 beyond the last name, and UINT64_MAX if a sum does not fit into 64 bits.
 * pfp_get_stats() returns the number of regions and their times. PFP_ENULL, PFP_EHANDLE for
 * a point from pfp_point(). */
int pfp_get_amounts(pfp_point_t *point, uint64_t *sums, unsigned count);

/* These functions work like those for numbered points, with three differences: a point may
 * begin again inside itself, points are initially switched on, and pfpCreate() is not
 * needed. At most 4,095 regions may be open per thread, and 1,024 per task; one more
 * discards all of them, which counts as a mismatch. Inclusive ticks count recursion once.
 * Exception: if a scope of a point with amounts is inside a region that pfp_begin() began
 * for the same point, the inclusive ticks of the scope count twice. PFP_ENULL. */
int pfp_begin(pfp_point_t *point);
int pfp_end(pfp_point_t *point, int latch);
int pfp_enable(pfp_point_t *point);
int pfp_disable(pfp_point_t *point);
int pfp_get_stats(pfp_point_t *point, pfpStats_t *stats);
int pfp_reset(pfp_point_t *point);
/* PFP_ENULL, PFP_EALPHA. */
int pfp_set_alpha(pfp_point_t *point, double alpha);
int pfp_clear_alpha(pfp_point_t *point);
/* Switches a point's fences on or off. With fences, its clock readings wait for all earlier
 * instructions. Otherwise, a short region that waits for memory is measured too short, and
 * the enclosing region too long. Fences cost about 50 ns per region, which are subtracted
 * from the figures. PFP_FENCE=1 in the environment fences all points. */
int pfp_set_fenced(pfp_point_t *point, int fenced);
/* Switches on or off whether the regions of a point count what they allocate. This needs
 * pfp-top run --alloc, or an allocator that calls pfp_alloc and pfp_free. PFP_ALLOCS=1 in
 * the environment switches it on for all points. */
int pfp_set_counting_allocs(pfp_point_t *point, int counting);
/* Keeps what explains each call of a point that takes at least ns nanoseconds by the clock,
 * or on a CPU, for pfp-top slow. 0 stops that. The time has two digits and is 1 us to 99 s;
 * a shorter or longer one counts as the nearest of these. */
int pfp_keep_over(pfp_point_t *point, unsigned long long ns);
int pfp_keep_over_cpu(pfp_point_t *point, unsigned long long ns);
/* Keeps the innermost open region of the calling thread as it is now, with the reason. */
void pfp_keep(const char *why);

/* For a program with an allocator of its own: pfp_alloc counts an allocation of the calling
 * thread, and pfp_free counts memory that the thread has freed. A reallocation calls both. Any
 * thread may call them, also before main, and a signal handler unless libpfp was loaded by
 * dlopen. */
void pfp_alloc(size_t bytes);
void pfp_free(size_t bytes);

/* ---- the program ----------------------------------------------------------- */

/* Creates the segment now instead of at the first region. For programs whose first region
 * could be in a signal handler. PFP_ENOSPACE. */
int pfp_init(void);

/* Sets the name that the viewer shows for the program. The default is the executable's
 * name. PFP_ENULL. */
int pfp_set_program_name(const char *name);

/* Sets the name that the viewer shows for the calling thread, up to 32 bytes. The default
 * is the thread's name in the kernel. Also allocates all memory for the thread's records,
 * 64 KiB, so a thread can call this before it enters a sandbox. PFP_ENULL. */
int pfp_register_thread(const char *name);

/* Writes the figures of this process to a file for `pfp-top open` and `pfp-top diff`. After
 * an error, no partial file remains. pfp_snapshot_to() fails if the file exists;
 * pfp_snapshot_over() replaces it. Not in signal handlers. PFP_ENULL, PFP_ENOSPACE,
 * PFP_EFILE with errno set, to EEXIST if the file exists. */
int pfp_snapshot_to(const char *path);
int pfp_snapshot_over(const char *path);

/* Writes the figures of this process to a file descriptor, as one line of JSON: an array of
 * threads. Each thread is an object with an array per label. The array contains an object
 * per tuple of amounts, with Bytes, Flops and Calls, and with Min, Max, Avg and Stddev of a
 * call's exclusive time in seconds. Not in signal handlers. PFP_ENOSPACE, PFP_EFILE with
 * errno set. */
int pfpShow(int fd);

/* If `on` is 0, switches all points off, including points that are registered later.
 * Otherwise, switches on again the points that this function has switched off. Takes effect
 * at each point's next begin. */
void pfp_set_enabled(int on);

/* Reads the time-stamp counter. */
uint64_t pfp_ticks(void);

/* Ticks of the time-stamp counter per second. The longer the program runs, the more
 * accurate the value. */
double pfp_ticks_per_second(void);

/* Reads the on-CPU clock of the calling thread or task, in ticks. Only differences are
 * meaningful. 0 if there is no such clock. */
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
 * A timer is not a point, needs no segment, and may be used by one thread at a time.
 */

/* Start or restart the timer, and stop it. Stopping a timer that does not run has no
 * effect. PFP_ENULL. */
int pfp_timer_start(pfp_timer_t *timer);
int pfp_timer_stop(pfp_timer_t *timer);

/* Milliseconds of the wall clock (CLOCK_MONOTONIC) from the start until the stop, or until
 * now while the timer runs. 0 before the first start. */
double pfp_timer_elapsed_ms(const pfp_timer_t *timer);

/* The part of pfp_timer_elapsed_ms() in which the calling thread was on a CPU. -1 before the
 * first start, or if another thread started or stopped the timer, because each thread has
 * its own CPU clock. */
double pfp_timer_on_cpu_ms(const pfp_timer_t *timer);

/* The library's version, such as "0.1.0". Never NULL. */
const char *pfp_version(void);

/* ---- every function, without touching the source ----------------------------- */

/* With -finstrument-functions, the compiler calls these two functions at the start and the
 * end of every function. Each function gets a point of its name at its first call. These
 * points are initially off: switch them on in the viewer, or with PFP_ENABLE='parse*' in
 * the environment. If the program is not linked with the library, LD_PRELOAD can load it;
 * `pfp-top run` does so. C++ names are mangled: PFP_ENABLE='*parse*' finds them.
 *
 * A function left by longjmp() ends at the next instrumented call or return in its caller.
 * Fibres should be reported through the hooks for tasks above, have stacks outside the
 * threads' stacks, and stay on their thread. */
void __cyg_profile_func_enter(void *function, void *call_site);
void __cyg_profile_func_exit(void *function, void *call_site);

/* ---- implementation of the macros; do not use directly ----------------------- */

/* A place in the source where a macro measures. */
typedef struct pfp_site {
    const pfp_point_t *point;
    const char *name;
    const char *file;
    unsigned line;
} pfp_site_t;

/* An open region; a tag of 0 means that it is not measured. */
typedef struct pfp_scope {
    uint64_t tag;
} pfp_scope_t;

/* A place in the source where a macro measures with amounts. `amounts` contains their names,
 * separated by commas. */
typedef struct pfp_metered_site {
    const pfp_point_t *point;
    const char *name;
    const char *file;
    const char *amounts;
    unsigned line;
} pfp_metered_site_t;

/* An open region with amounts. */
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

/* Initial point of each site. Its word reads as "on", so an unregistered site needs no
 * separate check. */
static const uint64_t pfp_unregistered_word_ __attribute__((unused)) = UINT64_MAX;
static const pfp_point_t pfp_unregistered_ __attribute__((unused)) = {
    &pfp_unregistered_word_};

/* ThreadSanitizer instruments this header but not the library, so it would not see the
 * synchronization between them. In such a build, the header does not read the point's word,
 * and the library checks whether the point is on. */
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

/* Converts an amount: NaN and negative numbers to 0, too large ones to UINT64_MAX. */
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

/* A region with amounts. It does not begin in the constructor, but in the macro. */
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
/* Number of arguments, up to eight. */
#define PFP_COUNT_(...) PFP_NINTH_(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define PFP_NINTH_(a, b, c, d, e, f, g, h, i, ...) i
#define PFP_AT_MOST_FOUR_(...)                                                       \
    PFP_ASSERT_(PFP_COUNT_(__VA_ARGS__) <= 4, "a region has at most four amounts")
/* These macros pass on exactly four amounts: their callers append zeros, and the macros
 * drop the surplus. */
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
    /* NULL, in a form without warnings in C and C++. */
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
PFP_NOTHING_ int pfp_set_counting_allocs(pfp_point_t *point, int counting)
{
    return (void)point, (void)counting, PFP_OK;
}
PFP_NOTHING_ int pfp_keep_over(pfp_point_t *point, unsigned long long ns)
{
    return (void)point, (void)ns, PFP_OK;
}
PFP_NOTHING_ int pfp_keep_over_cpu(pfp_point_t *point, unsigned long long ns)
{
    return (void)point, (void)ns, PFP_OK;
}
PFP_NOTHING_ void pfp_keep(const char *why) { (void)why; }
PFP_NOTHING_ void pfp_alloc(size_t bytes) { (void)bytes; }
PFP_NOTHING_ void pfp_free(size_t bytes) { (void)bytes; }
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
/* Uses the arguments, which avoids warnings, but does not evaluate them. */
#define PFP_SEEN_(a, b, c, d, ...)                                                   \
    ((void)sizeof((a) + 0), (void)sizeof((b) + 0), (void)sizeof((c) + 0),            \
     (void)sizeof((d) + 0))
#define PFP_AMOUNTS(name, names, ...) PFP_SEEN_(__VA_ARGS__, 0, 0, 0, 0, 0)
#define PFP_AMOUNTS_OF(point, ...) ((void)(point), PFP_AMOUNTS("", "", __VA_ARGS__))
#define PFP_METERED(name, bytes, flops) PFP_AMOUNTS(name, "bytes,flops", bytes, flops)

#endif /* PFP_DISABLE */

#endif /* PFP_H */

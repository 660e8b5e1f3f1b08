/* The rules of the interface with numbered points, one scenario for each. A scenario prints its
 * measurements and refusals, and the test compares them with the segment. */
#include <pfp.h>

#include <float.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "script.h"
#include "stolen.h"

/* The losses that the segment should have at the end. */
static unsigned points_refused, begins_refused, mismatched;

static volatile unsigned sink;

static void work(unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++)
        sink = sink + i;
}

static pfpStats_t stats(int id)
{
    pfpStats_t stats;
    EXPECT(pfpGetStats(id, &stats) == PFP_OK);
    return stats;
}

/* Prints a point's figures, which the segment must match. */
static void say_point(int id)
{
    const pfpStats_t has = stats(id);
    say("point %d %llu %llu %llu", id, (unsigned long long)has.n_count,
        (unsigned long long)has.c_total, (unsigned long long)has.c_inclusive);
}

static void pair(int id)
{
    EXPECT(pfpBegin(id, NULL) == PFP_OK);
    work(10);
    EXPECT(pfpEnd(id, 0) == PFP_OK);
}

static void create(void)
{
    EXPECT(pfpCreate() == PFP_OK);
}

/* Only the addresses of these are used, as handles. */
static char task, interrupt, signal_of_ours, unknown;

/* ---- results of calls ---------------------------------------------------------- */

static void all_by_number(int id, int expected)
{
    pfpStats_t has;
    memset(&has, 0x5a, sizeof has);
    EXPECT(pfpBegin(id, NULL) == expected);
    EXPECT(pfpEnd(id, 0) == expected);
    EXPECT(pfpEnd(id, 1) == expected);
    EXPECT(pfpEnable(id) == expected);
    EXPECT(pfpDisable(id) == expected);
    EXPECT(pfpGetStats(id, &has) == expected);
    EXPECT(pfpResetStats(id) == expected);
    EXPECT(pfpSetAlpha(id, 0.5f) == expected);
    EXPECT(pfpSetAverage(id, 100, 500) == expected);
    EXPECT(pfpClearAlpha(id) == expected);
    EXPECT(pfpSetName(id, "name") == expected);
    /* A refused call leaves the caller's memory unchanged. */
    EXPECT(has.n_count == 0x5a5a5a5a5a5a5a5aULL);
}

static void before_creation(void)
{
    all_by_number(1, PFP_ENOTCREATED);
    all_by_number(-1, PFP_ENOTCREATED);
    EXPECT(pfpCalibrate(100, 1) == PFP_ENOTCREATED);
    EXPECT(pfpGetStats(1, NULL) == PFP_ENOTCREATED);
    EXPECT(pfpSetName(1, NULL) == PFP_ENOTCREATED);
    EXPECT(pfpBegin(1, &task) == PFP_ENOTCREATED);
    EXPECT(pfpTaskRegister(0) == PFP_ENOTCREATED);
    EXPECT(pfpTaskCreate(&task) == PFP_ENOTCREATED);
    EXPECT(pfpTaskReady(&task) == PFP_ENOTCREATED);
    EXPECT(pfpTaskSwitch(NULL, &task) == PFP_ENOTCREATED);
    EXPECT(pfpTaskSwitch(&task, NULL) == PFP_ENOTCREATED);
    EXPECT(pfpTaskDelete(&task) == PFP_ENOTCREATED);
    EXPECT(pfpSwiRegister(0) == PFP_ENOTCREATED);
    EXPECT(pfpSwiCreate(&task) == PFP_ENOTCREATED);
    EXPECT(pfpSwiReady(&task) == PFP_ENOTCREATED);
    EXPECT(pfpSwiBegin(&task) == PFP_ENOTCREATED);
    EXPECT(pfpSwiEnd(&task) == PFP_ENOTCREATED);
    EXPECT(pfpSwiDelete(&task) == PFP_ENOTCREATED);
    EXPECT(pfpHwiRegister(0) == PFP_ENOTCREATED);
    EXPECT(pfpHwiCreate(&task) == PFP_ENOTCREATED);
    EXPECT(pfpHwiReady(&task) == PFP_ENOTCREATED);
    EXPECT(pfpHwiBegin(&task) == PFP_ENOTCREATED);
    EXPECT(pfpHwiEnd(&task) == PFP_ENOTCREATED);
    EXPECT(pfpHwiDelete(&task) == PFP_ENOTCREATED);

    create();
    EXPECT(pfpEnable(1) == PFP_OK);
    pair(1);
    EXPECT(stats(1).n_count == 1);
    say_point(1);
}

static void after_creation(void)
{
    create();
    EXPECT(stats(0).enabled);
    for (int id = 0; id < PFP_ID_COUNT; id++)
        EXPECT(stats(id).alpha <= 0 && stats(id).c_average <= 0);
    for (int id = 1; id < PFP_ID_COUNT; id++) {
        EXPECT(!stats(id).enabled);
        pair(id);
        EXPECT(stats(id).n_count == 0 && stats(id).c_total == 0);
    }
    EXPECT(pfpEnable(1) == PFP_OK);
    EXPECT(stats(1).enabled);
    pair(1);
    EXPECT(stats(1).c_min == stats(1).c_max && stats(1).c_min == stats(1).c_total);
    /* A second call changes nothing. */
    create();
    EXPECT(stats(1).enabled && stats(1).n_count == 1);
    pair(1);
    EXPECT(pfpDisable(1) == PFP_OK);
    pair(1);
    EXPECT(!stats(1).enabled && stats(1).n_count == 2);
    say_point(1);
}

static void numbers_out_of_range(void)
{
    static const int numbers[] = {-1, PFP_ID_COUNT, PFP_ID_COUNT + 1, INT_MIN, INT_MAX};
    create();
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        all_by_number(numbers[i], PFP_EID);
        points_refused += 11;
        EXPECT(pfpBegin(numbers[i], &unknown) == PFP_EID);
        points_refused += 1;
    }
    EXPECT(pfpEnable(PFP_ID_COUNT - 1) == PFP_OK);
    pair(PFP_ID_COUNT - 1);
    say_point(PFP_ID_COUNT - 1);
}

static void null_pointers(void)
{
    create();
    EXPECT(pfpGetStats(1, NULL) == PFP_ENULL);
    EXPECT(pfpSetName(1, NULL) == PFP_ENULL);
    EXPECT(pfpTaskCreate(NULL) == PFP_ENULL);
    EXPECT(pfpTaskReady(NULL) == PFP_ENULL);
    EXPECT(pfpTaskDelete(NULL) == PFP_ENULL);
    EXPECT(pfpSwiCreate(NULL) == PFP_ENULL);
    EXPECT(pfpSwiReady(NULL) == PFP_ENULL);
    EXPECT(pfpSwiBegin(NULL) == PFP_ENULL);
    EXPECT(pfpSwiEnd(NULL) == PFP_ENULL);
    EXPECT(pfpSwiDelete(NULL) == PFP_ENULL);
    EXPECT(pfpHwiCreate(NULL) == PFP_ENULL);
    EXPECT(pfpHwiReady(NULL) == PFP_ENULL);
    EXPECT(pfpHwiBegin(NULL) == PFP_ENULL);
    EXPECT(pfpHwiEnd(NULL) == PFP_ENULL);
    EXPECT(pfpHwiDelete(NULL) == PFP_ENULL);
    /* NULL means the scheduler itself. */
    EXPECT(pfpTaskSwitch(NULL, NULL) == PFP_OK);

    EXPECT(pfp_point(NULL, __FILE__, __LINE__) == NULL);
    EXPECT(pfp_begin(NULL) == PFP_ENULL);
    EXPECT(pfp_end(NULL, 0) == PFP_ENULL);
    EXPECT(pfp_end(NULL, 1) == PFP_ENULL);
    EXPECT(pfp_enable(NULL) == PFP_ENULL);
    EXPECT(pfp_disable(NULL) == PFP_ENULL);
    EXPECT(pfp_reset(NULL) == PFP_ENULL);
    EXPECT(pfp_set_alpha(NULL, 0.5) == PFP_ENULL);
    EXPECT(pfp_set_fenced(NULL, 1) == PFP_ENULL);
    EXPECT(pfp_keep_over(NULL, 5000000) == PFP_ENULL);
    EXPECT(pfp_keep_over_cpu(NULL, 5000000) == PFP_ENULL);
    pfp_keep(NULL);
    pfp_keep("no region is open");
    EXPECT(pfp_clear_alpha(NULL) == PFP_ENULL);
    pfpStats_t has;
    EXPECT(pfp_get_stats(NULL, &has) == PFP_ENULL);
    EXPECT(pfp_set_program_name(NULL) == PFP_ENULL);
    EXPECT(pfp_register_thread(NULL) == PFP_ENULL);
    pfp_point_t *nowhere = pfp_point("nowhere", NULL, 0);
    EXPECT(nowhere != NULL);
    EXPECT(pfp_get_stats(nowhere, NULL) == PFP_ENULL);
    EXPECT(pfp_point("nowhere", NULL, 0) == nowhere);
    pfp_point_t *none = NULL;
    PFP_SCOPE_OF(none);
}

static void weights(void)
{
    const float refused[] = {0.0f, -0.0f, -FLT_MIN, -0.5f, -1.0f, nextafterf(1.0f, 2.0f),
                             FLT_MAX, INFINITY, -INFINITY, NAN};
    const double periods[][2] = {{0, 500}, {100, 0}, {500, 100}, {-100, 500}, {100, -500},
                                 {-100, -500}, {NAN, 500}, {100, NAN}, {INFINITY, 500},
                                 {100, INFINITY}, {INFINITY, INFINITY}, {0, 0}};
    create();
    for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++) {
        EXPECT(pfpSetAlpha(1, refused[i]) == PFP_EALPHA);
        EXPECT(pfp_set_alpha(pfp_point("weighed", NULL, 0), refused[i]) == PFP_EALPHA);
    }
    for (unsigned i = 0; i < sizeof periods / sizeof *periods; i++)
        EXPECT(pfpSetAverage(1, periods[i][0], periods[i][1]) == PFP_EALPHA);
    EXPECT(stats(1).alpha <= 0);

    EXPECT(pfpSetAlpha(1, 1.0f) == PFP_OK);
    EXPECT(fabs(stats(1).alpha - 1.0) < 1e-6);
    /* The weight is rounded, but never down to "off". */
    EXPECT(pfpSetAlpha(1, FLT_MIN) == PFP_OK);
    EXPECT(stats(1).alpha > 0);
    EXPECT(pfpSetAverage(1, 100, 500) == PFP_OK);
    EXPECT(fabs(stats(1).alpha - 0.2) < 1e-6);
    /* The caller chooses the unit, however small or large. */
    EXPECT(pfpSetAverage(1, 1e-12, 4e-12) == PFP_OK);
    EXPECT(fabs(stats(1).alpha - 0.25) < 1e-6);
    EXPECT(pfpSetAverage(1, 1e30, 2e30) == PFP_OK);
    EXPECT(fabs(stats(1).alpha - 0.5) < 1e-6);

    /* With weight 1 the average is the last value. */
    EXPECT(pfpEnable(1) == PFP_OK);
    EXPECT(pfpSetAlpha(1, 1.0f) == PFP_OK);
    for (unsigned i = 1; i <= 10; i++) {
        EXPECT(pfpBegin(1, NULL) == PFP_OK);
        work(100 * i);
        EXPECT(pfpEnd(1, 0) == PFP_OK);
        EXPECT(fabs(stats(1).c_average - (double)stats(1).c_last) < 1);
    }
    EXPECT(pfpClearAlpha(1) == PFP_OK);
    pair(1);
    EXPECT(stats(1).alpha <= 0 && stats(1).c_average <= 0);
    say_point(1);
}

static void errors(void)
{
    const char *texts[9];
    for (int code = 0; code < 9; code++) {
        texts[code] = pfp_error(-code);
        EXPECT(texts[code] != NULL && *texts[code]);
        for (int other = 0; other < code; other++)
            EXPECT(strcmp(texts[code], texts[other]) != 0);
        if (code == 0)
            continue;
        /* Each text says what was expected, what was found, and what to do. */
        EXPECT(strncmp(texts[code], "expected ", 9) == 0);
        EXPECT(strstr(texts[code], ", found ") != NULL);
        const char *advice = strrchr(texts[code], ';');
        EXPECT(advice != NULL && strlen(advice) > 10);
    }
    EXPECT(strcmp(texts[0], "no error") == 0);
    EXPECT(strstr(pfp_error(1), "another number") != NULL);
    EXPECT(pfp_error(INT_MIN) == pfp_error(-100) && pfp_error(INT_MAX) == pfp_error(1));
    create();
}

/* ---- calibration --------------------------------------------------------------- */

static void calibration(void)
{
    create();
    /* Calibration runs once at the start. */
    const uint64_t first = stats(0).n_count;
    EXPECT(first > 0);
    EXPECT(pfpCalibrate(320, 0) == PFP_OK);
    const uint64_t second = stats(0).n_count;
    EXPECT(second >= first + 320);
    /* With a second argument of 1, calibration discards its earlier measurements. */
    EXPECT(pfpCalibrate(320, 1) == PFP_OK);
    EXPECT(stats(0).n_count >= 320 && stats(0).n_count == second - first);
    const int odd[] = {0, 1, -1, INT_MIN};
    for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++)
        EXPECT(pfpCalibrate(odd[i], 1) == PFP_OK);
    EXPECT(stats(0).n_count > 0);
    EXPECT(pfpDisable(0) == PFP_OK);
    EXPECT(pfpCalibrate(100, 0) == PFP_ENOSPACE);
    EXPECT(pfpEnable(0) == PFP_OK);
    EXPECT(pfpCalibrate(100, 0) == PFP_OK);
    /* Point 0 has the calibration's empty regions, and point 1 one region with work. */
    EXPECT(pfpEnable(1) == PFP_OK);
    pair(1);
    say_point(0);
    say_point(1);
}

/* ---- begin and end --------------------------------------------------------------- */

static void end_before_begin(void)
{
    create();
    EXPECT(pfpEnable(1) == PFP_OK);
    for (int i = 0; i < 100; i++) {
        EXPECT(pfpEnd(1, 0) == PFP_OK);
        EXPECT(pfpBegin(1, NULL) == PFP_OK);
        work(10);
    }
    EXPECT(stats(1).n_count == 99);
    EXPECT(pfpEnd(1, 0) == PFP_OK);
    for (int i = 0; i < 100; i++)
        EXPECT(pfpEnd(1, i & 1) == PFP_OK);
    EXPECT(stats(1).n_count == 100);
    say_point(1);
}

static void begin_after_begin(void)
{
    create();
    EXPECT(pfpEnable(1) == PFP_OK && pfpEnable(2) == PFP_OK);
    pair(1);
    /* A second begin of point 1 disables point 1; the enclosing point 2 continues. */
    EXPECT(pfpBegin(2, NULL) == PFP_OK);
    EXPECT(pfpBegin(1, NULL) == PFP_OK);
    EXPECT(pfpBegin(1, NULL) == PFP_OK);
    EXPECT(!stats(1).enabled);
    EXPECT(pfpEnd(1, 0) == PFP_OK);
    EXPECT(pfpEnd(2, 0) == PFP_OK);
    EXPECT(stats(1).n_count == 1 && stats(2).n_count == 1 && stats(2).enabled);
    pair(1);
    EXPECT(stats(1).n_count == 1);
    reach("invalid");
    EXPECT(pfpEnable(1) == PFP_OK);
    EXPECT(stats(1).enabled);
    pair(1);
    EXPECT(stats(1).n_count == 2);
    /* A second begin also disables a point that has a latched part. */
    EXPECT(pfpBegin(1, NULL) == PFP_OK && pfpEnd(1, 1) == PFP_OK);
    EXPECT(pfpBegin(1, NULL) == PFP_OK && pfpBegin(1, NULL) == PFP_OK);
    EXPECT(!stats(1).enabled && stats(1).n_count == 2);
    EXPECT(pfpEnable(1) == PFP_OK);
    pair(1);
    EXPECT(stats(1).n_count == 3);
    /* A point by name may begin again inside itself. */
    pfp_point_t *again = pfp_point("again", NULL, 0);
    EXPECT(pfp_begin(again) == PFP_OK);
    work(10000);
    EXPECT(pfp_begin(again) == PFP_OK);
    work(10000);
    EXPECT(pfp_end(again, 0) == PFP_OK && pfp_end(again, 0) == PFP_OK);
    pfpStats_t has;
    EXPECT(pfp_get_stats(again, &has) == PFP_OK);
    /* The inclusive time is that of the outer region. It also includes the cost of measuring the
     * inner region. */
    EXPECT(has.n_count == 2 && has.enabled && 2 * has.c_inclusive <= 2 * has.c_total + has.c_max);
    say_point(1);
    say_point(2);
}

static void unended_inside(void)
{
    create();
    EXPECT(pfpEnable(1) == PFP_OK && pfpEnable(2) == PFP_OK);
    for (int i = 0; i < 10; i++) {
        EXPECT(pfpBegin(1, NULL) == PFP_OK);
        EXPECT(pfpBegin(2, NULL) == PFP_OK);
        EXPECT(pfpEnd(1, 0) == PFP_OK);
        mismatched += 1;
        EXPECT(pfpEnd(2, 0) == PFP_OK);
    }
    EXPECT(stats(1).n_count == 10 && stats(2).n_count == 0);
    say_point(1);
    say_point(2);
}

/* Measures a region in several parts; returns their total time by the clock. */
static uint64_t in_parts(int id, unsigned parts)
{
    uint64_t all = 0;
    for (unsigned part = 0; part < parts; part++) {
        const uint64_t start = pfp_on_cpu_ticks();
        pair(0);
        EXPECT(pfpBegin(id, NULL) == PFP_OK);
        work(1000);
        EXPECT(pfpEnd(id, part + 1 < parts) == PFP_OK);
        all += pfp_on_cpu_ticks() - start;
    }
    return all;
}

/* The minimum number of ticks of `calls` calls of work(1000): half a tick for each addition, and
 * less if the counter is slower than a gigahertz. */
static uint64_t a_thousand_sums(unsigned calls)
{
    return (uint64_t)(calls * 500 * fmin(1.0, pfp_ticks_per_second() / 1e9));
}

static void latching(void)
{
    create();
    for (int id = 1; id < 32; id++)
        EXPECT(pfpEnable(id) == PFP_OK);
    const unsigned numbers[] = {1, 2, 3, 1000};
    for (unsigned i = 0; i < 4; i++) {
        EXPECT(pfpResetStats(1) == PFP_OK);
        const struct account before = account_now();
        const uint64_t around = in_parts(1, numbers[i]);
        const double stolen = (double)stolen_ns(before) * pfp_ticks_per_second() / 1e9;
        /* All parts make one measurement. */
        EXPECT(stats(1).n_count == 1);
        EXPECT(stats(1).c_total == stats(1).c_min && stats(1).c_total == stats(1).c_max);
        /* Time that a hypervisor steals is taken out late: by the clock around, and not by the
         * region if that has ended. */
        EXPECT_AT_MOST(stats(1).c_total, around + (uint64_t)stolen);
        EXPECT(stats(1).c_inclusive == stats(1).c_total);
        EXPECT(stats(1).c_total >= a_thousand_sums(numbers[i]));
    }
    /* Eight points are latched at once, with a thousand parts each. */
    for (int part = 0; part < 1000; part++) {
        for (int id = 2; id < 10; id++) {
            EXPECT(pfpBegin(id, NULL) == PFP_OK);
            work(1000);
            EXPECT(pfpEnd(id, 1) == PFP_OK);
        }
    }
    for (int id = 2; id < 10; id++)
        EXPECT(stats(id).n_count == 0);
    /* Only eight points can be latched at once. Each part of a ninth point counts separately, and
     * its latch is refused. */
    for (int part = 0; part < 5; part++) {
        EXPECT(pfpBegin(10, NULL) == PFP_OK);
        EXPECT(pfpEnd(10, 1) == PFP_OK);
        begins_refused += 1;
    }
    EXPECT(stats(10).n_count == 5);
    for (int id = 2; id < 10; id++) {
        pair(id);
        EXPECT(stats(id).n_count == 1);
        EXPECT(stats(id).c_total >= a_thousand_sums(1000));
    }
    /* The eight points are no longer latched, so point 10 can be latched. */
    EXPECT(pfpBegin(10, NULL) == PFP_OK && pfpEnd(10, 1) == PFP_OK);
    EXPECT(stats(10).n_count == 5);
    pair(10);
    EXPECT(stats(10).n_count == 6);
    /* Nested regions are subtracted from each part. */
    for (int part = 0; part < 100; part++) {
        EXPECT(pfpBegin(11, NULL) == PFP_OK);
        EXPECT(pfpBegin(12, NULL) == PFP_OK);
        /* This work takes much longer than a slow end, whose cost counts for the outer region. */
        work(20000);
        EXPECT(pfpEnd(12, part < 99) == PFP_OK);
        EXPECT(pfpEnd(11, part < 99) == PFP_OK);
    }
    EXPECT(stats(11).n_count == 1 && stats(12).n_count == 1);
    EXPECT(stats(12).c_total >= a_thousand_sums(2000));
    EXPECT(stats(11).c_total < stats(12).c_total);
    EXPECT(stats(11).c_inclusive > stats(12).c_inclusive);
    for (int id = 1; id < 13; id++)
        say_point(id);
}

static void deep(void)
{
    create();
    for (int id = 1; id < PFP_ID_COUNT; id++)
        EXPECT(pfpEnable(id) == PFP_OK);
    for (int round = 0; round < 10; round++) {
        for (int id = 1; id <= 40; id++)
            EXPECT(pfpBegin(id, NULL) == PFP_OK);
        for (int id = 40; id >= 1; id--)
            EXPECT(pfpEnd(id, 0) == PFP_OK);
    }
    for (int id = 1; id <= 40; id++) {
        EXPECT(stats(id).n_count == 10);
        say_point(id);
    }
}

static void longer_than_32_bits(void)
{
    create();
    EXPECT(pfpEnable(1) == PFP_OK);
    const uint64_t start = pfp_ticks();
    EXPECT(pfpBegin(1, NULL) == PFP_OK);
    /* Measured from inside the region, since the thread may be off the CPU as the region begins. */
    const uint64_t begun = pfp_ticks();
    while (pfp_ticks() - begun < (UINT64_C(1) << 32) + 1000000)
        work(1000);
    EXPECT(pfpEnd(1, 0) == PFP_OK);
    const uint64_t around = pfp_ticks() - start;
    const pfpStats_t has = stats(1);
    /* On-CPU and off-CPU time add up to the whole time. */
    EXPECT(has.c_inclusive + has.c_off_cpu > UINT64_C(1) << 32);
    EXPECT(has.c_inclusive + has.c_off_cpu <= around);
    EXPECT(has.n_count == 1 && has.c_max == has.c_total && has.c_last == has.c_total);
    say_point(1);
}

/* ---- handlers, other threads ------------------------------------------------------- */

static volatile sig_atomic_t handled;

static void in_handler(int number)
{
    (void)number;
    EXPECT(pfpHwiBegin(&signal_of_ours) == PFP_OK);
    EXPECT(pfpBegin(2, NULL) == PFP_OK);
    work(10);
    EXPECT(pfpEnd(2, 0) == PFP_OK);
    EXPECT(pfpHwiEnd(&signal_of_ours) == PFP_OK);
    handled = handled + 1;
}

static void (*act_so_often)(int);
static struct itimerval pause_between;

/* Sets the timer for the next signal after the handler has ended. With a periodic timer, a machine
 * on which the handler takes longer than the period would run nothing but the handler. */
static void on_alarm(int number)
{
    act_so_often(number);
    EXPECT(setitimer(ITIMER_REAL, &pause_between, NULL) == 0);
}

static void every_so_often(void (*handler)(int), long microseconds)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    act_so_often = handler;
    action.sa_handler = on_alarm;
    action.sa_flags = SA_RESTART;
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    pause_between.it_value.tv_usec = microseconds;
    EXPECT(setitimer(ITIMER_REAL, &pause_between, NULL) == 0);
}

static void no_longer(void)
{
    pause_between.it_value.tv_usec = 0;
    EXPECT(setitimer(ITIMER_REAL, &pause_between, NULL) == 0);
    EXPECT(signal(SIGALRM, SIG_IGN) != SIG_ERR);
}

static void in_signal_handlers(void)
{
    unsigned pairs = 0;
    create();
    EXPECT(pfpEnable(1) == PFP_OK && pfpEnable(2) == PFP_OK);
    EXPECT(pfpHwiCreate(&signal_of_ours) == PFP_OK);
    pair(1);
    EXPECT(pfpResetStats(1) == PFP_OK);
    every_so_often(in_handler, 200);
    while (handled < 500) {
        pair(1);
        pairs++;
    }
    no_longer();
    EXPECT(stats(1).n_count == pairs);
    EXPECT(stats(2).n_count == (uint64_t)handled);
    say_point(1);
    say_point(2);
}

static int steered;

static void steer(void)
{
    EXPECT(pfpDisable(1) == PFP_OK);
    EXPECT(pfpResetStats(1) == PFP_OK);
    EXPECT(pfpEnable(1) == PFP_OK);
}

static void steer_in_handler(int number)
{
    (void)number;
    steer();
    /* The counter is atomic, since the signal may arrive on either thread. */
    __atomic_fetch_add(&steered, 1, __ATOMIC_RELAXED);
}

/* Calls the function that `status` points to, for point 1. */
static void *act(void *status)
{
    int (*const *action)(int) = (int (*const *)(int))status;
    return (*action)(1) == PFP_OK ? status : NULL;
}

static void elsewhere(int (*action)(int))
{
    pthread_t thread;
    void *result;
    EXPECT(pthread_create(&thread, NULL, act, (void *)&action) == 0);
    EXPECT(pthread_join(thread, &result) == 0 && result != NULL);
}

static int steering = 1;

static void *steer_on(void *nothing)
{
    while (__atomic_load_n(&steering, __ATOMIC_RELAXED))
        steer();
    return nothing;
}

static void steered_while_open(void)
{
    create();
    EXPECT(pfpEnable(1) == PFP_OK && pfpEnable(2) == PFP_OK);
    /* Disabled while open: the open region is counted, and later ones do not begin. */
    EXPECT(pfpBegin(1, NULL) == PFP_OK);
    elsewhere(pfpDisable);
    EXPECT(!stats(1).enabled);
    EXPECT(pfpEnd(1, 0) == PFP_OK);
    EXPECT(stats(1).n_count == 1);
    pair(1);
    EXPECT(stats(1).n_count == 1);
    elsewhere(pfpEnable);
    pair(1);
    EXPECT(stats(1).n_count == 2);
    /* Reset while open: a region that began before the reset is not in the new figures. */
    EXPECT(pfpBegin(1, NULL) == PFP_OK);
    elsewhere(pfpResetStats);
    EXPECT(pfpEnd(1, 0) == PFP_OK);
    EXPECT(stats(1).n_count == 0 && stats(1).c_total == 0);
    for (int i = 0; i < 3; i++)
        pair(1);
    EXPECT(stats(1).n_count == 3);
    /* Reset between the parts of a latched region: earlier parts are not counted. */
    EXPECT(pfpBegin(1, NULL) == PFP_OK && pfpEnd(1, 1) == PFP_OK);
    elsewhere(pfpResetStats);
    pair(1);
    EXPECT(stats(1).n_count == 1);

    /* Changed at any moment: by a handler, which may interrupt anything, and by another thread. */
    pthread_t thread;
    uint64_t pairs = 0;
    every_so_often(steer_in_handler, 200);
    EXPECT(pthread_create(&thread, NULL, steer_on, NULL) == 0);
    while (__atomic_load_n(&steered, __ATOMIC_RELAXED) < 500) {
        EXPECT(pfpBegin(2, NULL) == PFP_OK);
        EXPECT(pfpBegin(1, NULL) == PFP_OK);
        EXPECT(pfpEnd(1, 0) == PFP_OK);
        EXPECT(pfpEnd(2, 0) == PFP_OK);
        pairs++;
    }
    __atomic_store_n(&steering, 0, __ATOMIC_RELAXED);
    EXPECT(pthread_join(thread, NULL) == 0);
    no_longer();
    EXPECT(stats(2).n_count == pairs);
    EXPECT(stats(1).n_count <= pairs);
    EXPECT(pfpResetStats(1) == PFP_OK);
    for (int i = 0; i < 7; i++)
        pair(1);
    EXPECT(stats(1).n_count == 7);
    say_point(1);
    say_point(2);
}

/* ---- handles ------------------------------------------------------------------------ */

static void begin_in_a_task(void)
{
    create();
    EXPECT(pfpEnable(1) == PFP_OK);
    pair(1);
    EXPECT(pfpBegin(1, &unknown) == PFP_EHANDLE);
    mismatched += 1;
    EXPECT(pfpTaskCreate(&task) == PFP_OK);
    EXPECT(pfpSwiCreate(&interrupt) == PFP_OK);
    EXPECT(pfpBegin(1, &task) == PFP_EHANDLE);
    mismatched += 1;
    EXPECT(pfpTaskSwitch(NULL, &task) == PFP_OK);
    for (int i = 0; i < 3; i++) {
        EXPECT(pfpBegin(1, &task) == PFP_OK);
        EXPECT(pfpBegin(1, &interrupt) == PFP_EHANDLE);
        mismatched += 1;
        EXPECT(pfpSwiBegin(&interrupt) == PFP_OK);
        EXPECT(pfpBegin(1, &task) == PFP_EHANDLE);
        mismatched += 1;
        EXPECT(pfpBegin(1, &interrupt) == PFP_OK);
        EXPECT(pfpEnd(1, 0) == PFP_OK);
        EXPECT(pfpSwiEnd(&interrupt) == PFP_OK);
        EXPECT(pfpEnd(1, 0) == PFP_OK);
    }
    EXPECT(pfpTaskSwitch(&task, NULL) == PFP_OK);
    EXPECT(pfpBegin(1, &task) == PFP_EHANDLE);
    mismatched += 1;
    EXPECT(stats(1).enabled && stats(1).n_count == 7);
    say_point(1);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"before-creation", before_creation},
    {"after-creation", after_creation},
    {"numbers-out-of-range", numbers_out_of_range},
    {"null-pointers", null_pointers},
    {"weights", weights},
    {"errors", errors},
    {"calibration", calibration},
    {"end-before-begin", end_before_begin},
    {"begin-after-begin", begin_after_begin},
    {"unended-inside", unended_inside},
    {"latching", latching},
    {"deep", deep},
    {"longer-than-32-bits", longer_than_32_bits},
    {"in-signal-handlers", in_signal_handlers},
    {"steered-while-open", steered_while_open},
    {"begin-in-a-task", begin_in_a_task},
};

int main(int argc, char **argv)
{
    for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (argc < 2) {
            say("%s", scenarios[i].name);
        } else if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            say("losses %u %u %u", points_refused, begins_refused, mismatched);
            reach("done");
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}

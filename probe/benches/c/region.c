/* Cost of a region in C. This is a worker like those of `pfp-bench` in Rust.
 *
 *     region --case NAME
 *
 * For each line `CALLS 1`, it runs one batch and answers
 * `NANOSECONDS CPU_NANOSECONDS RSS_BYTES`; the first two are per region. */
#include <pfp.h>

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NUMBER = 5 };

/* Prevents the compiler from merging or moving the code around it. */
#define NOTHING() __asm__ volatile("" ::: "memory")

static void scope(unsigned long calls)
{
    for (unsigned long call = 0; call < calls; call++) {
        PFP_SCOPE("scope");
        NOTHING();
    }
}

/* Hides a value from the compiler, as `black_box` does in the Rust cases. */
static unsigned long opaque(unsigned long n)
{
    __asm__ volatile("" : "+r"(n));
    return n;
}

static void timed(unsigned long calls)
{
    for (unsigned long call = 0; call < calls; call++) {
        unsigned long n = opaque(100);
        PFP_METERED("timed", n * 24, n * 2);
        NOTHING();
    }
}

static void timed_in_turn(unsigned long calls)
{
    for (unsigned long call = 0; call < calls; call++) {
        unsigned long n = opaque(1 + call % 8);
        PFP_METERED("timed in turn", n * 24, n * 2);
        NOTHING();
    }
}

static void by_name(unsigned long calls)
{
    pfp_point_t *point = pfp_point("by name", __FILE__, __LINE__);
    for (unsigned long call = 0; call < calls; call++) {
        pfp_begin(point);
        NOTHING();
        pfp_end(point, 0);
    }
}

static void by_number(unsigned long calls)
{
    pfpEnable(NUMBER);
    for (unsigned long call = 0; call < calls; call++) {
        pfpBegin(NUMBER, NULL);
        NOTHING();
        pfpEnd(NUMBER, 0);
    }
}

static void scope_off(unsigned long calls)
{
    static pfp_point_t *point;
    if (!point) {
        point = pfp_point("off", __FILE__, __LINE__);
        pfp_disable(point);
    }
    for (unsigned long call = 0; call < calls; call++) {
        PFP_SCOPE_OF(point);
        NOTHING();
    }
}

static void by_number_off(unsigned long calls)
{
    pfpDisable(NUMBER);
    for (unsigned long call = 0; call < calls; call++) {
        pfpBegin(NUMBER, NULL);
        NOTHING();
        pfpEnd(NUMBER, 0);
    }
}

static void empty_loop(unsigned long calls)
{
    for (unsigned long call = 0; call < calls; call++)
        NOTHING();
}

static const struct {
    const char *name;
    void (*batch)(unsigned long calls);
} CASES[] = {
    {"PFP_SCOPE", scope},
    {"PFP_METERED", timed},
    {"PFP_METERED, eight in turn", timed_in_turn},
    {"pfp_begin, pfp_end", by_name},
    {"pfpBegin, pfpEnd", by_number},
    {"disabled: PFP_SCOPE_OF", scope_off},
    {"disabled: pfpBegin, pfpEnd", by_number_off},
    {"an empty loop", empty_loop},
};

static double ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static unsigned long resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        if (fscanf(file, "%*u %lu", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    return pages * (unsigned long)sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv)
{
    void (*batch)(unsigned long) = NULL;
    unsigned long calls;

    for (size_t at = 0; argc == 3 && at < sizeof CASES / sizeof *CASES; at++)
        if (strcmp(argv[2], CASES[at].name) == 0)
            batch = CASES[at].batch;
    if (!batch || pfpCreate() != PFP_OK)
        return 2;
    batch(10);
    while (scanf("%lu %*u", &calls) == 1) {
        double cpu = ns(CLOCK_THREAD_CPUTIME_ID), start = ns(CLOCK_MONOTONIC), took;
        batch(calls);
        took = ns(CLOCK_MONOTONIC) - start;
        cpu = ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
        printf("%f %f %lu\n", took / (double)(calls ? calls : 1),
               cpu / (double)(calls ? calls : 1), resident_bytes());
        fflush(stdout);
    }
    return 0;
}

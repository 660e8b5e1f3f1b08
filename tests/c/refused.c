/* A program whose system calls may fail while pfp starts, like `src/bin/target/refused.rs`. Its
 * standard output does not depend on the library. */
#include <pfp.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT 4242
#define ROUNDS 96
#define MARK 7777

static char before[1 << 18], after[1 << 18];

static void read_maps(char *to, size_t size)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    size_t bytes = maps ? fread(to, 1, size - 1, maps) : 0;
    to[bytes] = 0;
    if (maps)
        fclose(maps);
}

static unsigned long descriptors(void)
{
    unsigned long open = 0;
    for (int at = 0; at < 1024; at++)
        open += fcntl(at, F_GETFD) != -1;
    return open;
}

static volatile unsigned long long step;

static unsigned long long turn(unsigned long long sum, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        step = i;
        sum = (sum ^ step) * 0x9e3779b97f4a7c15ULL;
    }
    return sum;
}

static unsigned long long work(int measured)
{
    unsigned long long sum = 1;
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (measured) {
            PFP_SCOPE("scope");
            pfpBegin(7, NULL);
            sum = turn(sum, round * round);
            pfpEnd(7, 0);
        } else {
            sum = turn(sum, round * round);
        }
    }
    return sum;
}

static void tell(FILE *report, unsigned long opened)
{
    pfpStats_t stats;
    char *line, *rest = after;
    memset(&stats, 0, sizeof stats);
    if (descriptors() > opened)
        fprintf(report, "descriptor more than before\n");
    while ((line = strsep(&rest, "\n")) != NULL) {
        char range[64], mode[8], name[512] = "-";
        if (*line == 0 || strstr(before, line) || strstr(line, "[heap]") || strstr(line, "[stack]"))
            continue;
        if (sscanf(line, "%63s %7s %*s %*s %*s %511s", range, mode, name) >= 2)
            fprintf(report, "mapping %s %s %s\n", name, mode, range);
    }
    (void)pfpGetStats(7, &stats);
    fprintf(report, "count %d %llu\n", ROUNDS, (unsigned long long)stats.n_count);
    fprintf(report, "seconds %f\n", (double)stats.c_inclusive / 1e9);
    fprintf(report, "init %s\n", pfpCreate() == PFP_OK ? "true" : "false");
}

int main(int count, char **arguments)
{
    int measured = count > 1 && strcmp(arguments[1], "measured") == 0;
    unsigned long opened = descriptors();
    unsigned long long sum;
    int kept;

    read_maps(before, sizeof before);
    errno = KEPT;
    sched_get_priority_max(MARK);
    errno = KEPT;
    if (measured) {
        (void)pfpCreate();
        (void)pfpEnable(7);
    }
    sum = work(measured);
    kept = errno;
    sched_get_priority_max(MARK);
    printf("%llx %d\n", sum, kept);
    fflush(stdout);
    if (measured && count > 2) {
        FILE *report;
        read_maps(after, sizeof after);
        report = fopen(arguments[2], "w");
        if (report == NULL)
            return 1;
        tell(report, opened + 1);
        fclose(report);
    }
    sched_get_priority_max(MARK);
    return 0;
}

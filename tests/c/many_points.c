/* Makes points at run time. Prints the CPU time of a thousand new points, once while there are few
 * points, and once while there are many. Each time is the least of TIMES measurements. */
#include <pfp.h>

#include <time.h>

#include "script.h"

enum { THOUSAND = 1000, TIMES = 10 };

static unsigned next;

static double spent(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double least_of_a_thousand(int amounts)
{
    double least = 1e12;
    int time, at;
    for (time = 0; time < TIMES; time++) {
        double before = spent();
        for (at = 0; at < THOUSAND; at++) {
            char name[32];
            pfp_point_t *point;
            snprintf(name, sizeof name, "point %u", next++);
            point = amounts ? pfp_point_amounts(name, "file", next, "items")
                            : pfp_point(name, "file", next);
            if (point)
                pfp_begin(point), pfp_end(point, 0);
        }
        if (spent() - before < least)
            least = spent() - before;
    }
    return least;
}

int main(void)
{
    EXPECT(pfp_init() == PFP_OK);
    /* The segment has room for 10,240 points; all further ones are refused. */
    while (next < 2000)
        least_of_a_thousand(0);
    say("few %.3f", least_of_a_thousand(0));
    while (next < 100000)
        least_of_a_thousand(0);
    say("many %.3f", least_of_a_thousand(0));
    say("few_amounts %.3f", least_of_a_thousand(1));
    say("many_amounts %.3f", least_of_a_thousand(1));
    return 0;
}

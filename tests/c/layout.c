/* The layout that the compiler gives to the structures in pfp.h, and the values that the library
 * writes into them. */
#include <pfp.h>

#include <stddef.h>
#include <string.h>

#include "script.h"

static void *handle(int number)
{
    static char handles[PFP_OBJECTS + 1];
    return &handles[number];
}

int main(void)
{
    pfpStats_t has;
    volatile unsigned sink = 0;

    /* The library asserts the same sizes for its own declarations. */
    EXPECT(sizeof(pfpStats_t) == 128);
    EXPECT(sizeof(pfp_site_t) == 32);
    EXPECT(sizeof(pfp_scope_t) == sizeof(uint64_t));
    EXPECT(sizeof(pfp_point_t) == sizeof(void *));
    say("ids %d", PFP_ID_COUNT);

    EXPECT(pfpCreate() == PFP_OK);
    EXPECT(pfpEnable(1) == PFP_OK);
    EXPECT(pfpSetAlpha(1, 0.25f) == PFP_OK);
    for (unsigned i = 1; i <= 100; i++) {
        EXPECT(pfpBegin(1, NULL) == PFP_OK);
        EXPECT(pfpBegin(0, NULL) == PFP_OK);
        for (unsigned j = 0; j < 10 * i; j++)
            sink = sink + j;
        EXPECT(pfpEnd(0, 0) == PFP_OK);
        /* An interrupt of the program takes the region off the CPU, and counts as a switch. */
        EXPECT(pfpHwiCreate(handle(0)) == PFP_OK);
        EXPECT(pfpHwiBegin(handle(0)) == PFP_OK);
        EXPECT(pfpHwiEnd(handle(0)) == PFP_OK);
        for (unsigned j = 0; j < 100 * i; j++)
            sink = sink + j;
        EXPECT(pfpEnd(1, 0) == PFP_OK);
    }
    memset(&has, 0x5a, sizeof has);
    EXPECT(pfpGetStats(1, &has) == PFP_OK);
    for (unsigned i = 0; i < sizeof has.reserved / sizeof *has.reserved; i++)
        EXPECT(has.reserved[i] == 0);
    EXPECT(has.enabled && has.c_min < has.c_max);
#define SAY(field) say(#field " %llu", (unsigned long long)has.field)
    SAY(c_total);
    SAY(n_count);
    SAY(c_min);
    SAY(c_max);
    SAY(c_last);
    SAY(c_inclusive);
    SAY(c_off_cpu);
    SAY(n_switches);
    say("alpha %.9f", (double)has.alpha);
    say("c_average %.3f", has.c_average);
    say("c_mean %.3f", has.c_mean);
    say("c_deviation %.3f", has.c_deviation);

    for (int i = 0; i < PFP_OBJECTS; i++)
        EXPECT(pfpTaskCreate(handle(i + 1)) == (i + 1 < PFP_OBJECTS ? PFP_OK : PFP_EFULL));
    EXPECT(pfpHwiDelete(handle(0)) == PFP_OK);
    EXPECT(pfpTaskCreate(handle(PFP_OBJECTS)) == PFP_OK);
    EXPECT(strstr(pfp_error(PFP_EFULL), "PFP_OBJECTS") != NULL);
    EXPECT(strstr(pfp_error(PFP_EBUSY), "lock") != NULL);
    reach("done");
    return 0;
}

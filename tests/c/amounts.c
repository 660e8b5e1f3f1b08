/* Regions with amounts in C and C++. Prints the sums that it computes itself. */
#ifdef __cplusplus
#include <pfp.hpp>
#else
#include <pfp.h>
#endif

#include <stdio.h>
#include <unistd.h>

static uint64_t triad(unsigned n)
{
    PFP_METERED("triad", n * 24, n * 2);
    return n;
}

static uint64_t handle(int requests, double size)
{
    if (requests < 0)
        return 0;
    PFP_AMOUNTS("handle", "requests, bytes", requests, size);
    return (uint64_t)requests;
}

/* Begins and ends by hand: one region in two parts, whose amounts are added; or, if `n` is a
 * multiple of three, a region without amounts. */
static uint64_t receive(pfp_point_t *point, uint64_t n)
{
    const uint64_t part[2] = {n % 20, 1};
    pfp_begin(point);
    if (n % 3 == 0)
        return pfp_end(point, 0), 0;
    pfp_end_amounts(point, 1, part, 1);
    pfp_begin(point);
    pfp_end_amounts(point, 0, part, 2);
    return 2 * part[0];
}

/* Scopes of a point that the program creates itself. */
static uint64_t send(pfp_point_t *point, uint64_t n)
{
    if (n % 5 == 0) {
        /* A region without amounts. */
        PFP_SCOPE_OF(point);
        return 0;
    }
    PFP_AMOUNTS_OF(point, n % 20 * 8, 1U);
    return n % 20 * 8;
}

/* Values that cannot be amounts, and values that are too large. */
static void odd(double none)
{
    struct {
        unsigned few : 4;
        int less : 4;
    } bits = {9, -3};
    unsigned once = 5;
    {
        PFP_AMOUNTS("odd", "a,b,c,d", -5, -2.5, none / none, bits.less);
    }
    {
        PFP_AMOUNTS("mixed", "a,b,c,d", once++, 2.9F, (char)7, bits.few);
    }
    {
        PFP_AMOUNTS("most", "a,b", 1e30, UINT64_MAX);
    }
    printf("once %u\n", once);
}

int main(void)
{
    uint64_t elements = 0, requests = 0, sizes = 0, received = 0;
    unsigned n;
    pfpStats_t stats;
    pfp_point_t *point = pfp_point_amounts("receive", __FILE__, __LINE__, "bytes, packets");
    pfp_point_t *plain = pfp_point("plain", __FILE__, __LINE__);
#ifdef __cplusplus
    static pfp::point object("send", __FILE__, __LINE__, "bytes,packets");
    pfp_point_t *sender = object;
#else
    pfp_point_t *sender = pfp_point_amounts("send", __FILE__, __LINE__, "bytes,packets");
#endif
    uint64_t sent = 0, sums[3] = {1, 1, 1};
    for (n = 0; n < 900; n++)
        received += receive(point, n);
    pfp_disable(point);
    receive(point, 1);
    pfp_enable(point);
    pfp_get_stats(point, &stats);
    printf("receive %lu %lu 600\n", (unsigned long)stats.n_count, (unsigned long)received);
    printf("statuses %d %d %d\n", pfp_end_amounts(NULL, 0, &received, 1),
           pfp_end_amounts(point, 0, NULL, 1), pfp_end_amounts(plain, 0, &received, 1));
    for (n = 0; n < 900; n++)
        sent += send(sender, n);
    pfp_get_stats(sender, &stats);
    printf("reported %d %lu", pfp_get_amounts(sender, sums, 3), (unsigned long)stats.n_count);
    for (n = 0; n < 3; n++)
        printf(" %lu", (unsigned long)sums[n]);
    printf("\nsend 900 %lu 720\n", (unsigned long)sent);
    /* A point without amounts does not measure regions with amounts. */
    send(plain, 1);
    pfp_get_stats(plain, &stats);
    printf("refused %d %d %d %d %lu\n", pfp_get_amounts(NULL, sums, 1),
           pfp_get_amounts(sender, NULL, 1), pfp_get_amounts(plain, sums, 1),
           pfp_point_amounts("five", NULL, 0, "a,b,c,d,e") != NULL,
           (unsigned long)stats.n_count);
    odd(0.0);
    for (n = 0; n < 1000; n++) {
        elements += triad(n % 12);
        requests += handle((int)(n % 3), 7.0);
        sizes += 7;
    }
    pfp_set_enabled(0);
    triad(5);
    pfp_set_enabled(1);
    printf("triad 1000 %lu %lu\n", (unsigned long)elements * 24, (unsigned long)elements * 2);
    printf("handle 1000 %lu %lu\n", (unsigned long)requests, (unsigned long)sizes);
    printf("shown ");
    fflush(stdout);
    if (pfpShow(STDOUT_FILENO) != PFP_OK)
        return 1;
    printf("done\n");
    fflush(stdout);
    return getchar() == EOF;
}

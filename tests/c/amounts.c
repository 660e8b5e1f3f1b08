/* Regions with amounts in C and C++: says what it measured, by its own arithmetic. */
#include <pfp.h>

#include <stdio.h>
#include <unistd.h>

static uint64_t triad(unsigned n)
{
    PFP_TIMED("triad", n * 24, n * 2);
    return n;
}

static uint64_t handle(int requests, double size)
{
    if (requests < 0)
        return 0;
    PFP_AMOUNTS("handle", "requests, bytes", requests, size);
    return (uint64_t)requests;
}

int main(void)
{
    uint64_t elements = 0, requests = 0, sizes = 0;
    unsigned n;
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

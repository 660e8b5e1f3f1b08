/* Regions in OpenMP's loops, nested teams and tasks, with the program's own counts. */
#include <pfp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "script.h"

#define THREADS 4
#define ITERATIONS 40000
#define TEAMS 50

static void spin(unsigned loops)
{
    volatile unsigned i;
    for (i = 0; i < loops; i++)
        ;
}

/* Each thread has its share of the iterations. */
static void loops(void)
{
#pragma omp parallel num_threads(THREADS)
    {
        unsigned mine = 0;
#pragma omp for schedule(static, 16)
        for (int i = 0; i < ITERATIONS; i++) {
            PFP_SCOPE("iteration");
            mine++;
            {
                PFP_SCOPE("inner");
                spin(20);
            }
        }
#pragma omp critical
        say("thread %ld %u", syscall(SYS_gettid), mine);
    }
}

static unsigned nested(void)
{
    unsigned members = 0;
#pragma omp parallel num_threads(2)
    {
        PFP_SCOPE("team");
#pragma omp parallel num_threads(3)
        {
            PFP_SCOPE("member");
            spin(100);
#pragma omp atomic
            members++;
        }
    }
    return members;
}

static unsigned calls;

/* At a taskwait, a thread runs other tasks inside the region of its own task. */
static unsigned fibonacci(unsigned n)
{
    PFP_FUNCTION();
    unsigned left, right;
#pragma omp atomic
    calls++;
    if (n < 2)
        return n;
#pragma omp task shared(left)
    left = fibonacci(n - 1);
    right = fibonacci(n - 2);
#pragma omp taskwait
    return left + right;
}

int main(void)
{
    unsigned members = 0, result = 0;

    EXPECT(pfp_init() == PFP_OK);
    loops();
    /* The threads still exist here. */
    reach("loops");
    for (int i = 0; i < TEAMS; i++)
        members += nested();
#pragma omp parallel num_threads(THREADS)
#pragma omp single
    result = fibonacci(16);
    EXPECT(result == 987);
    say("members %u", members);
    say("calls %u", calls);
    reach("done");
    return 0;
}

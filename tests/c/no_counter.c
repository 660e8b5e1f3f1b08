/* A program that is not permitted to read the processor's counter measures regions of every
 * form. */
#include <pfp.h>

#include <pthread.h>
#include <sys/prctl.h>

#include "script.h"

enum { TIMES = 300 };

static void *measure(void *unused)
{
    static pfp_point_t *by_hand;
    by_hand = pfp_point("by hand", "no_counter.c", 1);
    for (int i = 0; i < TIMES; i++) {
        PFP_SCOPE("outer");
        {
            PFP_SCOPE("inner");
            for (volatile int turn = 0; turn < 20000; turn++)
                ;
        }
        pfp_begin(by_hand);
        pfp_end(by_hand, 0);
        pfpBegin(7, NULL);
        pfpEnd(7, 0);
        PFP_METERED("with amounts", 8, 2);
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) != 0)
        return 77;
    pfpCreate();
    measure(NULL);
    EXPECT(pthread_create(&thread, NULL, measure, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    say("times %d", 2 * TIMES);
    reach("done");
    return 0;
}

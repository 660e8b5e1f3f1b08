/* A handler jumps out of the call that ends a scope, at each of its first instructions. The scope
 * is in heap memory, and is leaked. The regions after each jump fill pages of records. */
#include <pfp.h>

#if !defined(__x86_64__)
int main(void)
{
    return 77;
}
#else
#include <setjmp.h>
#include <signal.h>
#include <string.h>

#include "script.h"
#include "single_step.h"

/* STEPS covers the fast path of an end and some of its slow path. BEHIND is the number of regions
 * after each jump. */
enum { STEPS = 300, BEHIND = 300 };

static sigjmp_buf behind;
static unsigned long at, steps;
static volatile sig_atomic_t ends;

static void on_trap(int signal, siginfo_t *about, void *context)
{
    (void)signal, (void)about;
    steps += steps_done(context);
    if (!ends && steps < at)
        return;
    step_no_more(context);
    if (!ends)
        siglongjmp(behind, 1);
}

/* Returns whether the handler jumped. If the end has fewer than `at` instructions, no jump
 * happens. */
static int jump_at_the_instruction(pfp_point_t *left)
{
    pfp_scope_t *scope = malloc(sizeof *scope);
    EXPECT(scope);
    steps = 0;
    ends = 0;
    pfp_scope_begin_of_(scope, left);
    if (sigsetjmp(behind, 1))
        return 1;
    single_step(1);
    pfp_scope_end_(scope);
    ends = 1;
    single_step(0);
    free(scope);
    return 0;
}

int main(void)
{
    struct sigaction action;
    unsigned long jumps = 0;
    pfp_point_t *const outer = pfp_point("outer", "heap", 1);
    pfp_point_t *const left = pfp_point("left", "heap", 2);
    pfp_point_t *const later = pfp_point("later", "heap", 3);
    for (int i = 0; i < BEHIND; i++) {
        PFP_SCOPE_OF(outer);
        PFP_SCOPE_OF(left);
        PFP_SCOPE_OF(later);
    }
    EXPECT(pfp_reset(later) == PFP_OK);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    EXPECT(sigaction(SIGTRAP, &action, NULL) == 0);
    for (at = 1; at <= STEPS; at++) {
        /* The region that the jump leaves open is discarded when `outer` ends. */
        pfp_begin(outer);
        const int has_jumped = jump_at_the_instruction(left);
        for (int i = 0; i < BEHIND; i++) {
            PFP_SCOPE_OF(later);
        }
        pfp_end(outer, 0);
        jumps += (unsigned)has_jumped;
    }
    say("jumps %lu", jumps);
    say("later %lu", (unsigned long)STEPS * BEHIND);
    reach("done");
    return 0;
}
#endif

/* Runs an action at a chosen instruction of some work with few single steps, as
 * `src/breakpoint.rs` does in Rust. A run goes at full speed to a checkpoint, which is a
 * breakpoint at an instruction that an earlier run has recorded, and single-steps from there. For
 * x86-64.
 *
 * Only one thread at a time can do this. Forked children record instructions for later children. */
#ifndef BREAKPOINT_H
#define BREAKPOINT_H

#include "single_step.h"

#define BREAKPOINT_MOST (1UL << 20)

struct trace {
    /* The address of each instruction by its step number, for the first `noted` steps. */
    unsigned long addresses[BREAKPOINT_MOST];
    unsigned long noted;
    /* step: the current step of the work. checkpoint: the step at which full speed ends, or 0.
     * passes: how often the run executes the checkpoint's instruction before that step.
     * is_passed: whether the run is single-stepping over that instruction now. */
    unsigned long step, checkpoint, passes;
    int is_passed;
    /* Number of recorded steps before a checkpoint to discard if a run misses the checkpoint. */
    unsigned long back;
};

static struct trace *trace;
/* The address of the planted breakpoint, and the byte that it replaced. */
static unsigned char *planted, replaced;
/* Whether the run is over, so that further traps are ignored. */
static volatile sig_atomic_t is_over = 1;

static void plant(unsigned long address)
{
    planted = (unsigned char *)address;
    replaced = *planted;
    *(volatile unsigned char *)planted = INT3;
}

static void take_out(void)
{
    if (planted)
        *(volatile unsigned char *)planted = replaced;
    planted = 0;
}

/* Call this before forking the processes that record. */
static void share_trace(void)
{
    void *shared = mmap(0, sizeof *trace, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(shared != MAP_FAILED);
    trace = (struct trace *)shared;
    trace->back = 1;
    share_known();
}

/* Prepares a run to step `at`; call single_step() with the result, and then run the work. The
 * result is true if there is no checkpoint, so the run must single-step from the start. */
static int run_to(unsigned long at)
{
    unsigned long step, earlier, passes, traps = at, last;

    if (!trace)
        share_trace();
    trace->checkpoint = trace->passes = trace->step = 0;
    last = trace->noted < at ? trace->noted : at;
    for (step = last; step > 0 && at - step < traps; step--) {
        const unsigned long address = trace->addresses[step];
        for (earlier = 1, passes = 0; earlier < step; earlier++)
            passes += trace->addresses[earlier] == address;
        if (at - step + 2 * passes < traps && make_writable(address)) {
            traps = at - step + 2 * passes;
            trace->checkpoint = step;
            trace->passes = passes;
        }
    }
    trace->noted = trace->checkpoint;
    trace->is_passed = 0;
    is_over = 0;
    if (trace->checkpoint)
        plant(trace->addresses[trace->checkpoint]);
    return !trace->checkpoint;
}

static void note(unsigned long address)
{
    trace->step++;
    if (trace->step == trace->noted + 1 && trace->step < BREAKPOINT_MOST) {
        trace->addresses[trace->step] = address;
        trace->noted = trace->step;
    }
}

/* Call this in the handler of SIGTRAP. Returns the current step of the work, and continues if that
 * step comes before `at`. Returns 0 if the trap does not count: before single-stepping has begun,
 * or after `is_over` was set. */
static unsigned long step_of_trap(void *context, unsigned long at)
{
    greg_t *const registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const int is_breakpoint = planted != 0;
    /* The last address that was recorded. */
    static unsigned long place;
    unsigned long done = steps_done(context);

    if (is_breakpoint) {
        take_out();
        registers[REG_RIP]--;
    }
    if (is_over) {
        step_no_more(context);
        return 0;
    }
    if (is_breakpoint) {
        registers[REG_EFL] |= (greg_t)TRAP_FLAG;
        if (trace->passes) {
            trace->is_passed = 1;
            return 0;
        }
        trace->step = trace->checkpoint;
    } else if (trace->is_passed) {
        trace->is_passed = 0;
        trace->passes--;
        step_no_more(context);
        plant(trace->addresses[trace->checkpoint]);
        return 0;
    } else {
        for (; done > 1; done--)
            note(place += length_at(place));
        note((unsigned long)registers[REG_RIP]);
    }
    while (trace->step < at && step_aside(context))
        note((unsigned long)registers[REG_RIP]);
    if (trace->step < at)
        step_on(context, at - trace->step);
    place = (unsigned long)registers[REG_RIP];
    return trace->step;
}

/* Call this after a run. Returns whether the run took another path and missed its checkpoint, in
 * which case the next run uses an earlier checkpoint. */
static int has_missed(void)
{
    take_out();
    if (!trace->checkpoint || trace->step) {
        trace->back = 1;
        return 0;
    }
    trace->noted = trace->checkpoint > trace->back ? trace->checkpoint - trace->back : 0;
    trace->back *= 2;
    return 1;
}

#endif

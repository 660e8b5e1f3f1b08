/* Calls every function of the interface, one after the other, while a handler interrupts the call
 * at some instructions and performs an action of its own.
 *
 * everything HOW EACH MOST: the handler's action; the number of instructions from one interruption
 * to the next; and the maximum number of interruptions of a call, since calibrating takes millions
 * of instructions.
 *
 *   measures   by scope, by hand, by number and with a point that it creates
 *   interrupt  like `measures`, declared as a hardware interrupt
 *   steers     enables, disables, resets and creates points
 *   forks      forks a child that measures, returns into the function and continues
 *   vforks     creates a child that shares its memory and measures */
#include <pfp.h>

#if !defined(__x86_64__)
int main(void)
{
    return 77;
}
#else
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script.h"
#include "single_step.h"

#define NUMBER 7
#define NUMBER_OF_HANDLER 8

static enum { MEASURES, INTERRUPT, STEERS, FORKS, VFORKS } how;
static const char *const ways[] = {"measures", "interrupt", "steers", "forks", "vforks"};
static unsigned long each, most, next = 1, steps, last;
static unsigned long handlers, handlers_off, children, crashed, failed;
static volatile sig_atomic_t is_child, is_off;
static int hwi, another_hwi, swi, task, another_task;
static pfp_point_t *named, *named_of_handler, *steered, *with_amounts;

static void handle(void)
{
    PFP_SCOPE("handler");
    pfp_begin(named_of_handler);
    pfp_end(named_of_handler, 0);
    pfpBegin(NUMBER_OF_HANDLER, NULL);
    pfpEnd(NUMBER_OF_HANDLER, 0);
    pfp_point_t *asked = pfp_point("asked", "everything", 1);
    EXPECT(asked != NULL);
    PFP_SCOPE_OF(asked);
}

static void judge(pid_t child)
{
    int status;
    EXPECT(waitpid(child, &status, 0) == child);
    children++;
    crashed += WIFSIGNALED(status) != 0;
    failed += WIFEXITED(status) && WEXITSTATUS(status) != 0;
    if (status && getenv("EVERYTHING_SAYS"))
        fprintf(stderr, "child at step %lu: status %x\n", steps, (unsigned)status);
}

static void on_trap(int number, siginfo_t *info, void *context)
{
    pid_t child;

    const unsigned long until = next < last ? next : last;

    (void)number, (void)info;
    steps += steps_done(context);
    while (!is_child && steps < until && step_aside(context))
        steps++;
    if (is_child || steps == last) {
        step_no_more(context);
        return;
    }
    if (steps < next) {
        step_on(context, until - steps);
        return;
    }
    next = steps + each;
    handlers++;
    handlers_off += is_off != 0;
    switch (how) {
    case MEASURES:
        handle();
        break;
    case INTERRUPT:
        EXPECT(pfpHwiBegin(&hwi) == PFP_OK);
        handle();
        EXPECT(pfpHwiEnd(&hwi) == PFP_OK);
        break;
    case STEERS:
        EXPECT(pfp_reset(steered) == PFP_OK);
        EXPECT(pfp_disable(steered) == PFP_OK);
        EXPECT(pfp_enable(steered) == PFP_OK);
        EXPECT(pfp_point("asked", "everything", 1) != NULL);
        break;
    case FORKS:
        child = fork();
        EXPECT(child >= 0);
        if (child > 0) {
            judge(child);
            break;
        }
        is_child = 1;
        step_no_more(context);
        alarm(60);
        break;
    case VFORKS:
        child = vfork();
        EXPECT(child >= 0);
        if (child == 0) {
            handle();
            if (handlers % 2)
                execl("/bin/true", "true", (char *)NULL);
            _exit(0);
        }
        judge(child);
    }
}

static void trap(int on)
{
    if (is_child)
        return;
    last = steps + most;
    single_step(on);
}

/* STEP makes a call that the handler interrupts. WELL also expects success, except in a forked
 * child that has returned into the call: such a child is in no task, so functions of tasks fail
 * there. */
#define STEP(call) (trap(1), result = (call), trap(0), result)
#define WELL(call) EXPECT(STEP(call) == PFP_OK || is_child)

static void scopes(void)
{
    trap(1);
    {
        PFP_SCOPE("scope");
    }
    {
        PFP_METERED("timed", 8, 2);
    }
    {
        PFP_AMOUNTS("amounts", "a,b,c", 1, 2, 3);
    }
    trap(0);
}

static void by_name(void)
{
    const uint64_t two[2] = {3, 4};
    uint64_t sums[2];
    pfpStats_t stats;
    int result;

    trap(1);
    named = pfp_point("named", "everything", 1);
    with_amounts = pfp_point_amounts("with amounts", "everything", 1, "bytes,packets");
    trap(0);
    EXPECT(named && with_amounts);
    WELL(pfp_begin(named));
    WELL(pfp_end(named, 1));
    WELL(pfp_begin(named));
    WELL(pfp_end(named, 0));
    WELL(pfp_begin(with_amounts));
    WELL(pfp_end_amounts(with_amounts, 0, two, 2));
    WELL(pfp_get_amounts(with_amounts, sums, 2));
    WELL(pfp_get_stats(named, &stats));
    WELL(pfp_begin(steered));
    WELL(pfp_end(steered, 0));
    WELL(pfp_disable(steered));
    WELL(pfp_enable(steered));
    WELL(pfp_set_alpha(steered, 0.5));
    WELL(pfp_clear_alpha(steered));
    WELL(pfp_set_fenced(steered, 1));
    WELL(pfp_begin(steered));
    WELL(pfp_end(steered, 0));
    WELL(pfp_set_fenced(steered, 0));
    WELL(pfp_reset(steered));
}

static void by_number(void)
{
    pfpStats_t stats;
    int result;

    WELL(pfpSetName(NUMBER, "numbered"));
    WELL(pfpEnable(NUMBER));
    WELL(pfpBegin(NUMBER, NULL));
    WELL(pfpEnd(NUMBER, 0));
    WELL(pfpGetStats(NUMBER, &stats));
    WELL(pfpSetAlpha(NUMBER + 2, 0.5F));
    WELL(pfpSetAverage(NUMBER + 2, 1, 5));
    WELL(pfpClearAlpha(NUMBER + 2));
    WELL(pfpDisable(NUMBER + 2));
    WELL(pfpResetStats(NUMBER + 2));
}

static void tasks(void)
{
    int result;

    WELL(pfpTaskRegister(0));
    WELL(pfpSwiRegister(0));
    WELL(pfpHwiRegister(0));
    WELL(pfpTaskCreate(&task));
    WELL(pfpTaskCreate(&another_task));
    WELL(pfpSwiCreate(&swi));
    WELL(pfpHwiCreate(&another_hwi));
    WELL(pfpTaskReady(&task));
    WELL(pfpSwiReady(&swi));
    WELL(pfpHwiReady(&hwi));
    WELL(pfpTaskSwitch(NULL, &task));
    WELL(pfp_begin(named));
    WELL(pfpTaskSwitch(&task, &another_task));
    WELL(pfp_begin(named));
    WELL(pfp_end(named, 0));
    WELL(pfpSwiBegin(&swi));
    WELL(pfp_begin(named));
    WELL(pfp_end(named, 0));
    WELL(pfpSwiEnd(&swi));
    WELL(pfpTaskSwitch(&another_task, &task));
    WELL(pfp_end(named, 0));
    WELL(pfpTaskSwitch(&task, NULL));
    WELL(pfpTaskDelete(&task));
    WELL(pfpTaskDelete(&another_task));
    WELL(pfpSwiDelete(&swi));
    WELL(pfpHwiDelete(&another_hwi));
}

static void of_the_program(void)
{
    pfp_timer_t timer = PFP_TIMER_INIT;
    char path[64];
    int result, nowhere = open("/dev/null", O_WRONLY);

    snprintf(path, sizeof path, "everything-%d.json", (int)getpid());
    WELL(pfp_init());
    WELL(pfpCreate());
    WELL(pfp_set_program_name("everything"));
    WELL(pfp_register_thread("main"));
    WELL(pfpCalibrate(10, 0));
    WELL(pfpShow(nowhere));
    /* If the handler forks, parent and child would write the same file in this call. */
    if (how != FORKS) {
        WELL(pfp_snapshot_over(path));
        EXPECT(unlink(path) == 0);
        WELL(pfp_snapshot_to(path));
        EXPECT(unlink(path) == 0);
    }
    WELL(pfp_timer_start(&timer));
    EXPECT(STEP(pfp_timer_elapsed_ms(&timer) >= 0));
    EXPECT(STEP(pfp_timer_on_cpu_ms(&timer) >= 0) || is_child);
    WELL(pfp_timer_stop(&timer));
    EXPECT(STEP(pfp_ticks() != 0));
    EXPECT(STEP(pfp_ticks_per_second() > 0));
    EXPECT(STEP(pfp_on_cpu_ticks() != 0));
    EXPECT(STEP(pfp_error(PFP_EID)[0] != 0));
    EXPECT(STEP(pfp_version()[0] != 0));
    is_off = 1;
    trap(1);
    pfp_set_enabled(0);
    pfp_set_enabled(1);
    trap(0);
    is_off = 0;
    close(nowhere);
}

static unsigned long count_of(pfp_point_t *point)
{
    pfpStats_t stats;
    EXPECT(pfp_get_stats(point, &stats) == PFP_OK);
    return (unsigned long)stats.n_count;
}

/* Ends a forked child that has returned into an interrupted call: it must measure correctly. */
static void end_child(void)
{
    int at;
    named = pfp_point("of child", "everything", 1);
    EXPECT(named != NULL);
    for (at = 0; at < 100; at++) {
        pfp_begin(named);
        pfp_end(named, 0);
    }
    _exit(count_of(named) == 100 ? 0 : 2);
}

int main(int count, char **arguments)
{
    void (*const parts[])(void) = {scopes, by_name, by_number, tasks, of_the_program};
    struct sigaction action;
    unsigned part;

    EXPECT(count == 4);
    while (strcmp(ways[how], arguments[1]))
        EXPECT(++how < sizeof ways / sizeof ways[0]);
    each = strtoul(arguments[2], NULL, 10);
    most = strtoul(arguments[3], NULL, 10);

    /* The interface requires that the thread has measured outside a handler first. */
    EXPECT(pfpCreate() == PFP_OK);
    named_of_handler = pfp_point("named of handler", "everything", 1);
    steered = pfp_point("steered", "everything", 1);
    EXPECT(pfpSetName(NUMBER_OF_HANDLER, "numbered of handler") == PFP_OK);
    EXPECT(pfpEnable(NUMBER_OF_HANDLER) == PFP_OK);
    EXPECT(pfpHwiCreate(&hwi) == PFP_OK);
    handle();

    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    EXPECT(sigaction(SIGTRAP, &action, NULL) == 0);
    for (part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        parts[part]();
        if (is_child)
            end_child();
        if (getenv("EVERYTHING_SAYS"))
            fprintf(stderr, "part %u: %lu steps, %lu handlers\n", part, steps, handlers);
    }
    say("handlers %lu", handlers);
    say("handlers_off %lu", handlers_off);
    say("steps %lu", steps);
    say("children %lu", children);
    say("crashed %lu", crashed);
    say("failed %lu", failed);
    reach("done");
    return 0;
}
#endif

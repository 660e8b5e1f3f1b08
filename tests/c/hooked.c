/* Functions that the compiler's hooks measure, interrupted at their instructions by a handler. The
 * handler's action is one of
 *
 *   measures  calls a measured function
 *   forks     forks a child that returns into the function, measures and ends
 *   vforks    creates a child that shares the memory and measures
 *   jumps     leaves the function by a jump
 *
 * Arguments: the action, and N to interrupt every N-th instruction. */
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
#include <sys/wait.h>
#include <unistd.h>

#define PLAIN __attribute__((no_instrument_function))
#define MEASURED __attribute__((noinline, noipa))

#include "breakpoint.h"

static enum { MEASURES, FORKS, VFORKS, JUMPS } how;
static const char *const ways[] = {"measures", "forks", "vforks", "jumps"};
static unsigned long at;
static volatile sig_atomic_t came, is_child;
static unsigned long outer_calls, inner_calls, handled, harmed, vforked;
static sigjmp_buf place;

MEASURED void in_handler(void);
MEASURED void inner(void);
MEASURED void outer(void);

void in_handler(void)
{
    __asm__ volatile("");
}

void inner(void)
{
    inner_calls++;
}

void outer(void)
{
    outer_calls++;
    inner();
}

PLAIN static void judge(pid_t child)
{
    int status;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    harmed += status != 0;
}

PLAIN static void on_trap(int signal, siginfo_t *info, void *context)
{
    pid_t child;

    (void)signal, (void)info;
    if (step_of_trap(context, at) != at)
        return;
    came = 1;
    is_over = 1;
    step_no_more(context);
    switch (how) {
    case MEASURES:
        in_handler();
        handled++;
        break;
    case FORKS:
        child = fork();
        if (child == 0)
            is_child = 1;
        else
            judge(child);
        break;
    case VFORKS:
        child = vfork();
        if (child == 0) {
            in_handler();
            _exit(0);
        }
        judge(child);
        vforked++;
        break;
    case JUMPS:
        siglongjmp(place, 1);
    }
}

PLAIN int main(int argc, char **argv)
{
    struct sigaction action;
    static unsigned long each, tried, over;

    EXPECT(argc == 3);
    while (strcmp(ways[how], argv[1]))
        how++;
    each = strtoul(argv[2], NULL, 0);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    EXPECT(sigaction(SIGTRAP, &action, NULL) == 0);
    outer();
    in_handler();
    handled++;
    for (at = 1; over < 3;) {
        came = 0;
        if (sigsetjmp(place, 1) == 0) {
            single_step(run_to(at));
            outer();
            is_over = 1;
            single_step(0);
        }
        if (is_child) {
            outer();
            _exit(0);
        }
        is_over = 1;
        if (has_missed())
            continue;
        if (!came) {
            over++;
            continue;
        }
        over = 0;
        tried++;
        at += each;
    }
    say("tried %lu %lu", tried, at);
    say("calls %lu %lu %lu %lu", outer_calls, inner_calls, handled, vforked);
    say("harmed %lu", harmed);
    reach("done");
    return 0;
}
#endif

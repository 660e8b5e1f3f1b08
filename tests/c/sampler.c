/* An independent profiler: a timer samples the function that the program is in. Preloaded instead
 * of libpfp, it contains the hooks that -finstrument-functions calls. At the end it prints each
 * function's address and its number of samples. Samples in functions without hooks count for the
 * caller. */
#include "script.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <ucontext.h>

#define QUIET __attribute__((no_instrument_function))
/* All hooks are in one section, so that a sample can be recognized as inside one of them. */
#define HOOK QUIET __attribute__((section("hooks")))

enum { DEEPEST = 4096, PLACES = 8192 };

/* Nanoseconds between samples. It does not divide any kernel's tick, so that samples do not
 * coincide with ticks. */
enum { INTERVAL = 199000 };

/* Start and end of the hooks' section, defined by the linker. */
extern const char __start_hooks[], __stop_hooks[];

/* The functions that the program is in, the innermost last. Entry 0 stands for no function. */
static void *volatile inside[DEEPEST];
static volatile unsigned depth;

static struct {
    void *function;
    unsigned long found;
} answers[PLACES];

HOOK void __cyg_profile_func_enter(void *function, void *site)
{
    (void)site;
    if (depth == DEEPEST - 1)
        abort();
    /* The order matters, since the timer may sample in between. */
    inside[depth + 1] = function;
    depth = depth + 1;
}

HOOK void __cyg_profile_func_exit(void *function, void *site)
{
    (void)function;
    (void)site;
    depth = depth - 1;
}

/* The instruction that a signal has interrupted. */
QUIET static uintptr_t interrupted(const ucontext_t *context)
{
#if defined __x86_64__
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#else
    return (uintptr_t)context->uc_mcontext.pc;
#endif
}

QUIET static void ask(int signal, siginfo_t *info, void *context)
{
    void *function = inside[depth];
    unsigned place = (unsigned)(((uintptr_t)function * 0x9E3779B97F4A7C15u) >> 51);
    uintptr_t at = interrupted(context);

    (void)signal;
    (void)info;
    /* Time inside the hooks counts for no function. */
    if (at >= (uintptr_t)__start_hooks && at < (uintptr_t)__stop_hooks)
        return;
    while (answers[place].function && answers[place].function != function)
        place = (place + 1) % PLACES;
    answers[place].function = function;
    answers[place].found++;
}

QUIET __attribute__((constructor)) static void start(void)
{
    struct sigaction action;
    struct sigevent event;
    timer_t timer;
    const struct itimerspec interval = { { 0, INTERVAL }, { 0, INTERVAL } };

    memset(&action, 0, sizeof action);
    action.sa_sigaction = ask;
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGALRM;
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    EXPECT(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    EXPECT(timer_settime(timer, 0, &interval, NULL) == 0);
}

QUIET __attribute__((destructor)) static void end(void)
{
    signal(SIGALRM, SIG_IGN);
    for (unsigned place = 0; place < PLACES; place++)
        if (answers[place].function)
            say("found %p %lu", answers[place].function, answers[place].found);
}

// A signal handler interrupts a begin or end at one instruction and does not return: it leaves by
// an exception, by the end of the thread, or by a cancellation, either deferred or asynchronous.
//
// `left HOW EACH SWITCHED` tries every EACH-th instruction, one after the other. If SWITCHED is not
// 0, each begin and end runs as if the kernel had just switched the thread.
#include <pfp.h>

#if !defined(__x86_64__)
int main() { return 77; }
#else
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "breakpoint.h"

namespace {

constexpr unsigned long CALLS = 3;

struct Left {};

enum { EXCEPTION, EXIT, CANCELLATION, AT_ONCE } how;
// Number of the instruction at which the handler leaves.
unsigned long at;
volatile sig_atomic_t has_left, is_switched;

pfp_point_t *inner, *outer;

// Makes a signal look like a context switch to the clock that watches rseq.
void switch_out()
{
    if (is_switched)
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGURG);
}

void call()
{
    switch_out();
    pfp_begin(inner);
    switch_out();
    pfp_end(inner, 0);
}

unsigned long counted()
{
    pfpStats_t stats;
    return pfp_get_stats(inner, &stats) == PFP_OK ? (unsigned long)stats.n_count : 0;
}

void on_trap(int, siginfo_t *, void *context)
{
    unsigned long step = step_of_trap(context, at);
    if (!step || step < at)
        return;
    has_left = 1;
    step_no_more(context);
    if (how == EXCEPTION)
        throw Left();
    if (how == EXIT)
        pthread_exit(nullptr);
    pthread_cancel(pthread_self());
    pthread_testcancel();
}

// Has no clean-up of its own, since an exception may occur at any of its instructions.
__attribute__((noinline)) void be_interrupted()
{
    single_step(run_to(at));
    call();
    is_over = 1;
}

// Runs a region normally, an interrupted region, and CALLS more regions if the thread continues.
void *measure(void *)
{
    int type;
    call();
    if (how == AT_ONCE)
        EXPECT(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type) == 0);
    has_left = 0;
    pfp_begin(outer);
    try {
        be_interrupted();
    } catch (const Left &) {
    }
    // The end of `outer` closes every region that was left open inside it.
    pfp_end(outer, 0);
    for (unsigned long i = 0; i < CALLS; i++)
        call();
    return nullptr;
}

// Whether every call was counted once, except that the call that was left may be missing.
bool is_right(unsigned long whole, unsigned long before)
{
    unsigned long more = counted() - before;
    return more == whole || (has_left && more + 1 == whole);
}

} // namespace

int main(int count, char **arguments)
{
    EXPECT(count == 4);
    how = !strcmp(arguments[1], "exception") ? EXCEPTION
        : !strcmp(arguments[1], "exit")      ? EXIT
        : !strcmp(arguments[1], "at once")   ? AT_ONCE
                                             : CANCELLATION;
    unsigned long each = strtoul(arguments[2], nullptr, 10), tried = 0, wrong = 0, first = 0;
    unsigned long missed = 0;
    is_switched = strtoul(arguments[3], nullptr, 10) != 0;
    inner = pfp_point("inner", "left", 1);
    outer = pfp_point("outer", "left", 2);

    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    EXPECT(sigaction(SIGTRAP, &action, nullptr) == 0);
    action.sa_sigaction = [](int, siginfo_t *, void *) {};
    EXPECT(sigaction(SIGURG, &action, nullptr) == 0);
    call();
    at = 1;
    for (;;) {
        unsigned long before = counted();
        if (how == EXCEPTION) {
            measure(nullptr);
        } else {
            pthread_t thread;
            EXPECT(pthread_create(&thread, nullptr, measure, nullptr) == 0);
            EXPECT(pthread_join(thread, nullptr) == 0);
        }
        const bool is_missed = has_missed();
        if (!has_left && !is_missed)
            break;
        missed += is_missed;
        const bool goes_on = how == EXCEPTION || !has_left;
        if (!is_right(goes_on ? 2 + CALLS : 2, before) && !wrong++)
            first = at;
        // The next call of the main thread must be counted.
        before = counted();
        call();
        if (counted() != before + 1 && !wrong++)
            first = at;
        if (has_left) {
            tried++;
            at += each;
        }
    }
    say("tried %lu %lu %lu", tried, at, missed);
    say("wrong %lu %lu", wrong, first);
    say("counted %lu", counted());
    reach("done");
    return 0;
}
#endif

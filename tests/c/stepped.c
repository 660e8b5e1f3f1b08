/* A process that is interrupted at instructions of pfp's cold paths by a handler that forks. The
 * child returns into the interrupted code, and continues on its own. With "jump" instead of a way
 * to fork, the program forks before it measures, and each child jumps out of one handler.
 *
 * stepped STAGE HOW EACH FIRST MOST: the path that is interrupted; the way to fork; the number of
 * instructions from one interruption to the next; the first instruction to interrupt; and the
 * maximum number of interruptions. */
#include <pfp.h>

#if !defined(__x86_64__)
int main(void)
{
    return 77;
}
#else
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "breakpoint.h"

#define CALLS 100

static unsigned long each, most;
static unsigned long steps, next, children;
static unsigned long crashed, hung, failed, missed, calls_before;
static int bare;
static volatile sig_atomic_t is_child;

#define LINE 1
static void call(int times)
{
    static pfp_point_t *point;
    while (times--) {
        point = pfp_point("call", "stepped", LINE);
        pfp_begin(point);
        pfp_end(point, 0);
    }
}

static unsigned long count_of(const char *name)
{
    pfpStats_t stats;
    pfp_point_t *point = pfp_point(name, "stepped", LINE);
    return pfp_get_stats(point, &stats) == PFP_OK ? (unsigned long)stats.n_count : 0;
}

static void count_end(int status)
{
    if (WIFSIGNALED(status)) {
        if (WTERMSIG(status) == SIGALRM)
            hung++;
        else
            crashed++;
        if (getenv("STEPPED_SAYS"))
            fprintf(stderr, "child %lu at step %lu: signal %d\n", children, steps,
                    WTERMSIG(status));
    } else if (WEXITSTATUS(status)) {
        failed++;
        if (getenv("STEPPED_SAYS"))
            fprintf(stderr, "child %lu at step %lu: status %d\n", children, steps,
                    WEXITSTATUS(status));
    }
}

static void judge(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child)
        _exit(90);
    count_end(status);
}

static void on_trap(int number, siginfo_t *info, void *context)
{
    ucontext_t *interrupted = context;
    pid_t child;

    (void)number, (void)info;
    steps += steps_done(context);
    if (is_child || children == most) {
        /* The child was about to turn stepping on, or there were enough interruptions. */
        step_no_more(context);
        return;
    }
    while (steps < next && step_aside(context))
        steps++;
    if (steps < next) {
        step_on(context, next - steps);
        return;
    }
    next = steps + each;
    children++;
    child = bare ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (child == 0) {
        is_child = 1;
        step_no_more(context);
        /* A child that hangs is killed, whatever signals it blocks. */
        signal(SIGALRM, SIG_DFL);
        {
            sigset_t one;
            sigemptyset(&one);
            sigaddset(&one, SIGALRM);
            sigdelset(&interrupted->uc_sigmask, SIGALRM);
            sigprocmask(SIG_UNBLOCK, &one, NULL);
        }
        alarm(60);
        return;
    }
    if (child > 0)
        judge(child);
}

static void trap(int on)
{
    if (!is_child)
        single_step(on);
}

/* Ends a forked child that has left the interrupted code; with an error if it miscounts. */
static void go_on(void)
{
    if (!is_child)
        return;
    /* The child does not have its parent's measurements, except for the interrupted one. */
    if (count_of("call") > 1)
        _exit(2);
    call(CALLS);
    /* A child of a fork that bypassed the C library is permitted to measure nothing. */
    if (count_of("call") > CALLS + 1 || (!bare && count_of("call") < CALLS))
        _exit(3);
    if (children % 2)
        _exit(0);
    exit(0);
}

static void measure_first(const char *stage)
{
    if (!strcmp(stage, "point")) {
        PFP_SCOPE("another");
    } else {
        call(1);
    }
}

static __attribute__((noinline)) void call_deep_down(void)
{
    volatile char room[16384];
    room[0] = 0;
    call(CALLS);
    room[sizeof room - 1] = room[0];
}

/* For jumps: the instruction to leave at, and the target. */
static unsigned long leave_at;
static sigjmp_buf left;

/* A jump out of the C library's allocator would leave the heap inconsistent. */
static volatile sig_atomic_t in_heap;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), __libc_free(void *);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
#define OF_HEAP(call) (in_heap++, result = (call), in_heap--, result)

void *malloc(size_t size)
{
    void *result;
    return OF_HEAP(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    void *result;
    return OF_HEAP(__libc_calloc(count, size));
}

void *realloc(void *old, size_t size)
{
    void *result;
    return OF_HEAP(__libc_realloc(old, size));
}

int posix_memalign(void **place, size_t alignment, size_t size)
{
    void *result;
    *place = OF_HEAP(__libc_memalign(alignment, size));
    return result ? 0 : ENOMEM;
}

void free(void *old)
{
    in_heap++;
    __libc_free(old);
    in_heap--;
}

static void on_trap_jump(int number, siginfo_t *info, void *context)
{
    const unsigned long step = step_of_trap(context, leave_at);
    (void)number, (void)info;
    if (step && step >= leave_at && !in_heap)
        siglongjmp(left, 1);
}

static unsigned long long cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

static void *call_some(void *unused)
{
    (void)unused;
    call(CALLS);
    return NULL;
}

/* Exit statuses of a child that has jumped. */
enum { WELL, NOT_INTERRUPTED = 1, MISCOUNTED = 10, SLOW, MASKED, UNCANCELLABLE };

/* Leaves the stage halfway, and checks that later measurements are right. */
static void *jump(void *stage)
{
    /* Alternates between restoring the signal mask at the jump, and leaving signals blocked. */
    const int keeps_mask = leave_at % 2 == 0;
    const unsigned long before = calls_before;
    unsigned long counted, calls;
    unsigned long long began;
    pthread_t other;
    sigset_t blocked;
    int state;

    if (!sigsetjmp(left, keeps_mask)) {
        single_step(run_to(leave_at));
        measure_first(stage);
        is_over = 1;
        single_step(0);
        _exit(NOT_INTERRUPTED);
    }
    began = cpu_us();
    /* Continues as deep on the stack as before, or below the frame that was left. The latter only
     * happens if the jump has restored the mask: with signals still blocked, pfp could not
     * distinguish this thread from a handler that measures. */
    if (leave_at % 4 == 2)
        call_deep_down();
    else
        call(CALLS);
    EXPECT(pthread_create(&other, NULL, call_some, NULL) == 0);
    EXPECT(pthread_join(other, NULL) == 0);
    /* Threads that wait for others spin, which uses CPU time. */
    if (cpu_us() - began > 500000)
        _exit(SLOW);
    /* This thread no longer takes a slow path, so pfp notices the jump only after up to a
     * millisecond. */
    for (calls = 2 * CALLS; calls < 10000 * CALLS; calls += CALLS) {
        pthread_sigmask(SIG_BLOCK, NULL, &blocked);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
        pthread_setcancelstate(state, NULL);
        if (!sigismember(&blocked, SIGUSR1) && state == PTHREAD_CANCEL_ENABLE)
            break;
        call(CALLS);
    }
    counted = count_of("call") - before - calls;
    /* The call that was left may have been counted already. */
    if (counted != 0 && (counted != 1 || !strcmp(stage, "point")))
        _exit(MISCOUNTED);
    if (sigismember(&blocked, SIGUSR1) || sigismember(&blocked, SIGALRM))
        _exit(MASKED);
    if (state != PTHREAD_CANCEL_ENABLE)
        _exit(UNCANCELLABLE);
    _exit(WELL);
}

static void jump_in_child(const char *stage)
{
    pthread_t thread;
    alarm(60);
    if (strcmp(stage, "process"))
        call(1), calls_before = 1;
    if (strcmp(stage, "thread"))
        jump((void *)stage);
    EXPECT(pthread_create(&thread, NULL, jump, (void *)stage) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
}

/* Forks a child for each instruction to leave at, until a child finishes the stage without having
 * missed its checkpoint. */
static void jump_everywhere(const char *stage)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_trap_jump;
    action.sa_flags = SA_NODEFER | SA_SIGINFO;
    EXPECT(sigaction(SIGTRAP, &action, NULL) == 0);
    share_trace();
    for (leave_at = next; children < most;) {
        int status = 0, is_missed;
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0)
            jump_in_child(stage);
        EXPECT(waitpid(child, &status, 0) == child);
        is_missed = has_missed();
        missed += (unsigned long)is_missed;
        if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_INTERRUPTED) {
            if (is_missed)
                continue;
            break;
        }
        children++;
        count_end(status);
        leave_at += each;
    }
}

static void *begins(void *unused)
{
    (void)unused;
    trap(1);
    call(1);
    trap(0);
    go_on();
    return NULL;
}

int main(int count, char **arguments)
{
    struct sigaction action;
    const char *stage;
    pthread_t thread;

    EXPECT(count == 6);
    stage = arguments[1];
    bare = !strcmp(arguments[2], "bare");
    each = strtoul(arguments[3], NULL, 10);
    next = strtoul(arguments[4], NULL, 10);
    most = strtoul(arguments[5], NULL, 10);
    if (!strcmp(arguments[2], "jump")) {
        jump_everywhere(stage);
        say("children %lu", children);
        say("steps %lu %lu", leave_at, missed);
        say("crashed %lu", crashed);
        say("hung %lu", hung);
        say("failed %lu", failed);
        reach("done");
        return 0;
    }
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    EXPECT(sigaction(SIGTRAP, &action, NULL) == 0);
    if (strcmp(stage, "process"))
        call(1), calls_before = 1;
    if (!strcmp(stage, "thread")) {
        EXPECT(pthread_create(&thread, NULL, begins, NULL) == 0);
        EXPECT(pthread_join(thread, NULL) == 0);
        calls_before++;
    } else {
        trap(1);
        measure_first(stage);
        trap(0);
        if (strcmp(stage, "point"))
            calls_before++;
    }
    go_on();
    say("children %lu", children);
    say("steps %lu", steps);
    say("crashed %lu", crashed);
    say("hung %lu", hung);
    say("failed %lu", failed);
    say("expected %lu", calls_before);
    say("counted %lu", count_of("call"));
    reach("done");
    return 0;
}
#endif

/* Fibres under a storm of signals: a timer interrupts them at random moments, including inside
 * pfp's own functions, and every second signal switches to the next fibre. All run on one thread.
 * The program counts its own measurements. */
#include <pfp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#include "script.h"
#include "stolen.h"

#define TASKS 4
#define STACK (256 * 1024)
/* Number of rounds after which a task yields. */
#define ROUNDS 16
#define EVERY_US 300

struct task {
    ucontext_t context;
    uint64_t rounds;
    int has_ended;
    char stack[STACK];
};

static struct task tasks[TASKS];
/* NULL means the scheduler's loop. */
static struct task *running;
static ucontext_t scheduler;
/* Whether the scheduler runs. Handlers must not pre-empt the scheduler. */
static volatile sig_atomic_t is_scheduling = 1;
static volatile sig_atomic_t is_over;
static char timer;
/* Number of pre-emptions to reach, and the counts so far. */
static uint64_t wanted, switches, preempted, interrupts;

static void spin(unsigned loops)
{
    volatile unsigned i;
    for (i = 0; i < loops; i++)
        ;
}

/* Time spent in calls of pfp's hooks. This time need not count for any region. */
static long long hooks_ns;
#define HOOK(call)                                          \
    do {                                                    \
        long long began = clock_ns(CLOCK_MONOTONIC);        \
        call;                                               \
        hooks_ns += clock_ns(CLOCK_MONOTONIC) - began;      \
    } while (0)

/* The task after the running one, or the scheduler if all have ended. */
static struct task *next_of(const struct task *task)
{
    int at = task ? (int)(task - tasks) : TASKS - 1;
    for (int i = 1; i <= TASKS; i++)
        if (!tasks[(at + i) % TASKS].has_ended)
            return &tasks[(at + i) % TASKS];
    return NULL;
}

static void swap(struct task *prev, struct task *next)
{
    switches++;
    swapcontext(prev ? &prev->context : &scheduler, next ? &next->context : &scheduler);
}

static void yield(void)
{
    struct task *prev = running, *next;
    is_scheduling = 1;
    next = next_of(prev);
    if (next != prev) {
        running = next;
        HOOK(pfpTaskSwitch(prev, next));
        swap(prev, next);
    }
    is_scheduling = 0;
}

static void on_timer(int signal)
{
    struct task *prev = running, *next = prev;
    (void)signal;
    HOOK(pfpHwiBegin(&timer));
    {
        PFP_SCOPE("interrupt");
        pfpBegin(2, &timer);
        spin(200);
        pfpEnd(2, 0);
    }
    interrupts++;
    if (!is_scheduling && interrupts % 2)
        next = next_of(prev);
    if (next != prev) {
        is_scheduling = 1;
        running = next;
        /* The switch takes effect when the interrupt ends. */
        HOOK(pfpTaskSwitch(prev, next));
    }
    HOOK(pfpHwiEnd(&timer));
    if (next != prev) {
        if (++preempted == wanted)
            is_over = 1;
        swap(prev, next);
        is_scheduling = 0;
    }
}

static void round_of(struct task *self)
{
    PFP_SCOPE("round");
    pfpBegin(1, self);
    spin(4000);
    {
        PFP_SCOPE("inner");
        spin(4000);
    }
    pfpEnd(1, 0);
    self->rounds++;
}

static void body(void)
{
    struct task *self = running;
    is_scheduling = 0;
    {
        PFP_SCOPE("task");
        while (!is_over) {
            round_of(self);
            if (self->rounds % ROUNDS == 0)
                yield();
        }
    }
    is_scheduling = 1;
    self->has_ended = 1;
    yield();
}

static void set_timer(long every_us)
{
    struct itimerval timing;
    timing.it_interval.tv_sec = timing.it_value.tv_sec = 0;
    timing.it_interval.tv_usec = timing.it_value.tv_usec = every_us;
    setitimer(ITIMER_REAL, &timing, NULL);
}

int main(int argc, char **argv)
{
    struct sigaction action;
    struct account account;
    uint64_t rounds = 0;
    long long began, ran, stolen;
    double rate;

    wanted = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    EXPECT(pfpCreate() == PFP_OK);
    EXPECT(pfpEnable(1) == PFP_OK && pfpEnable(2) == PFP_OK);
    EXPECT(pfpHwiCreate(&timer) == PFP_OK);
    for (int i = 0; i < TASKS; i++) {
        getcontext(&tasks[i].context);
        tasks[i].context.uc_stack.ss_sp = tasks[i].stack;
        tasks[i].context.uc_stack.ss_size = STACK;
        makecontext(&tasks[i].context, body, 0);
        EXPECT(pfpTaskCreate(&tasks[i]) == PFP_OK);
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = on_timer;
    action.sa_flags = SA_RESTART;
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    /* The thread's first region must not be inside a handler. */
    raise(SIGALRM);
    account = account_now();
    hooks_ns = 0;
    began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    {
        PFP_SCOPE("scheduler");
        set_timer(EVERY_US);
        yield();
        set_timer(0);
    }
    ran = clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
    stolen = stolen_ns(account);
    rate = pfp_ticks_per_second() / 1e9;
    say("cpu %.0f %.0f", (double)ran * rate, (double)stolen * rate);
    say("hooks %.0f", (double)hooks_ns * rate);
    for (int i = 0; i < TASKS; i++)
        rounds += tasks[i].rounds;
    say("rounds %llu", (unsigned long long)rounds);
    say("interrupts %llu", (unsigned long long)interrupts);
    say("switches %llu", (unsigned long long)switches);
    say("preempted %llu", (unsigned long long)preempted);
    reach("done");
    return 0;
}

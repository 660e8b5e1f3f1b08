/*
 * The two tasks of two_tasks.c as fibres of one thread, to show pfp's hooks. The
 * program has its own scheduler, and an interrupt in the form of a signal.
 *
 * Task 0 runs once per period, and is interrupted in its inner region. The interrupt
 * makes task 1 ready, which has the higher priority. At its next scheduling point,
 * task 0 yields to task 1. Both regions of task 0 are open then.
 *
 *     task 0    [2 1 ms ][3 2 ms ]                       [ 2 ms 3][ 1 ms 2]
 *     interrupt                   [5 0.5 ms ]
 *     task 1                                 [4 1.3 ms ]
 *
 * Points 0 to 4 are the points of two_tasks.c, and show the same loads. Point 5
 * measures the interrupt.
 *
 *     cc fibres.c -o fibres $(pkg-config --cflags --libs pfp)
 *     ./fibres [PERIODS] [--hold]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "loads.h"

#define INTERRUPT_LOAD (500 * US)
#define STACK (256 * 1024)

/* A fibre. Its address is its handle for pfp. */
struct task {
    ucontext_t context;
    volatile sig_atomic_t is_ready;
    char stack[STACK];
};

/* The tasks in the order of their priorities, the highest last. */
static struct task tasks[2];
/* The running task; NULL in the scheduler's loop. */
static struct task *running;
static ucontext_t scheduler;

/* The interrupt: its signal, and a variable whose address is its handle for pfp. */
static const int signal_number = SIGUSR1;
static char device;
/* CPU time of all interrupts. */
static volatile int64_t interrupts_ns;

/* CPU time of the tasks, without interrupts. */
static int64_t task_ns(void)
{
    return cpu_ns() - interrupts_ns;
}

static void make_ready(struct task *task)
{
    task->is_ready = 1;
    pfpTaskReady(task);
}

/* A scheduling point: switches to the ready task with the highest priority, or to the scheduler. */
static void schedule(void)
{
    struct task *prev = running, *next = NULL;
    for (int i = 0; i < 2; i++)
        if (tasks[i].is_ready)
            next = &tasks[i];
    if (next == prev)
        return;
    running = next;
    pfpTaskSwitch(prev, next);
    swapcontext(prev ? &prev->context : &scheduler, next ? &next->context : &scheduler);
}

static void wait_for_ready(struct task *self)
{
    self->is_ready = 0;
    schedule();
}

static void interrupt(int signal)
{
    int64_t before = cpu_ns();
    (void)signal;
    pfpHwiBegin(&device);
    pfpBegin(INTERRUPT, &device);
    compute(INTERRUPT, INTERRUPT_LOAD, cpu_ns);
    make_ready(&tasks[1]);
    pfpEnd(INTERRUPT, 0);
    pfpHwiEnd(&device);
    interrupts_ns += cpu_ns() - before;
}

static void task_0(void)
{
    for (;;) {
        pfpBegin(OUTER, &tasks[0]);
        compute(OUTER, OUTER_HALF, task_ns);
        pfpBegin(INNER, &tasks[0]);
        compute(INNER, INNER_LOAD / 2, task_ns);
        raise(signal_number);
        schedule();
        compute(INNER, INNER_LOAD / 2, task_ns);
        pfpEnd(INNER, 0);
        compute(OUTER, OUTER_HALF, task_ns);
        pfpEnd(OUTER, 0);
        wait_for_ready(&tasks[0]);
    }
}

static void task_1(void)
{
    for (;;) {
        pfpBegin(TASK_1, &tasks[1]);
        compute(TASK_1, TASK_1_LOAD, task_ns);
        pfpEnd(TASK_1, 0);
        wait_for_ready(&tasks[1]);
    }
}

static void create(struct task *task, void (*body)(void))
{
    getcontext(&task->context);
    task->context.uc_stack.ss_sp = task->stack;
    task->context.uc_stack.ss_size = STACK;
    makecontext(&task->context, body, 0);
    pfpTaskCreate(task);
}

int main(int argc, char **argv)
{
    struct sigaction action;
    int periods = DEFAULT_PERIODS, holds = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--hold") == 0) {
            holds = 1;
        } else if ((periods = atoi(argv[i])) <= 0) {
            fprintf(stderr, "usage: fibres [PERIODS] [--hold]\n");
            return 2;
        }
    }
    set_up_points(INTERRUPT);
    create(&tasks[0], task_0);
    create(&tasks[1], task_1);
    pfpHwiCreate(&device);
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt;
    sigaction(signal_number, &action, NULL);

    for (int period = 0; period < periods; period++) {
        make_ready(&tasks[0]);
        schedule();
    }
    print_table(INTERRUPT);
    if (holds)
        hold();
    return 0;
}

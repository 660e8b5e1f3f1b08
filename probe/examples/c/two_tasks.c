/*
 * Two periodic tasks that pre-empt each other on one CPU, measured through the
 * original interface.
 *
 * Both have a period of 10 ms. Task 0 starts at once and computes for 6 ms, including
 * 4 ms in an inner region. Task 1 starts 1.5 ms later, computes for 1.3 ms, and has
 * the higher priority if the system permits.
 *
 *     ms     0    1    2    3    4    5    6    7    8    9    10
 *     task 0 [2 1 ms ][3        ......        4 ms ][2 1 ms ]
 *     task 1             [4 1.3 ms ]
 *
 * Whatever the overlap, each point must show its own load, without nested regions and
 * the other task's time.
 *
 *     point  measures
 *     0      the overhead of measuring
 *     1      the tuning of the load that takes 1 ms
 *     2      task 0, outer region: 2 ms around the inner one
 *     3      task 0, inner region: 4 ms
 *     4      task 1: 1.3 ms
 *
 *     cc two_tasks.c -o two_tasks $(pkg-config --cflags --libs pfp) -lpthread
 *     ./two_tasks [PERIODS] [--hold]
 *
 * With --hold, the program prints its table and then waits until its standard input
 * ends, so that a viewer can show it. ../two_tasks.rs is this program in Rust.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "loads.h"

#define PERIOD (10 * MS)
#define PHASE_0 0
#define PHASE_1 (1500 * US)
/* Time for both threads to start before the first period. */
#define LEAD (20 * MS)

struct task {
    void (*body)(void);
    int priority;
    int64_t first_ns;
    /* Error number of the request for a real-time priority; 0 if it succeeded. */
    int refused;
};

static int periods = DEFAULT_PERIODS;

static void task_0(void)
{
    pfpBegin(OUTER, NULL);
    compute(OUTER, OUTER_HALF, cpu_ns);
    pfpBegin(INNER, NULL);
    compute(INNER, INNER_LOAD, cpu_ns);
    pfpEnd(INNER, 0);
    compute(OUTER, OUTER_HALF, cpu_ns);
    pfpEnd(OUTER, 0);
}

static void task_1(void)
{
    pfpBegin(TASK_1, NULL);
    compute(TASK_1, TASK_1_LOAD, cpu_ns);
    pfpEnd(TASK_1, 0);
}

/* Sleeps until a time of CLOCK_MONOTONIC. */
static void sleep_until(int64_t moment_ns)
{
    struct timespec time;
    time.tv_sec = (time_t)(moment_ns / (1000 * MS));
    time.tv_nsec = (long)(moment_ns % (1000 * MS));
    /* A signal ends the sleep early; the target time stays the same. */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

/* Runs a task's body once per period. The deadlines are absolute, so one late period
 * does not delay the next. */
static void *repeat(void *argument)
{
    struct task *task = argument;
    struct sched_param parameter;

    memset(&parameter, 0, sizeof parameter);
    parameter.sched_priority = task->priority;
    /* This needs a privilege; the example also works without it. */
    task->refused = pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter);
    for (int period = 0; period < periods; period++) {
        sleep_until(task->first_ns + period * PERIOD);
        task->body();
    }
    return NULL;
}

/* Binds the threads to one CPU: the last of the allowed CPUs, because most systems
 * handle interrupts on the first one. */
static int pin_to_one_cpu(void)
{
    cpu_set_t allowed, one;
    int last = CPU_SETSIZE - 1;

    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return -1;
    while (!CPU_ISSET(last, &allowed))
        last--;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    return sched_setaffinity(0, sizeof one, &one);
}

int main(int argc, char **argv)
{
    struct task tasks[2] = {{task_0, 10, PHASE_0, 0}, {task_1, 20, PHASE_1, 0}};
    pthread_t threads[2];
    int64_t start_ns;
    int holds = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--hold") == 0) {
            holds = 1;
        } else if ((periods = atoi(argv[i])) <= 0) {
            fprintf(stderr, "usage: two_tasks [PERIODS] [--hold]\n");
            return 2;
        }
    }
    if (pin_to_one_cpu() != 0) {
        perror("two_tasks");
        return 1;
    }
    set_up_points(TASK_1);
    start_ns = now_ns(CLOCK_MONOTONIC) + LEAD;
    for (int i = 0; i < 2; i++) {
        tasks[i].first_ns += start_ns;
        if (pthread_create(&threads[i], NULL, repeat, &tasks[i]) != 0) {
            fprintf(stderr, "two_tasks: no thread\n");
            return 1;
        }
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("# %s priorities, %" PRIu64 " loops a ms\n",
           tasks[0].refused ? "plain" : "real-time", loops_per_ms);
    print_table(TASK_1);
    if (holds)
        hold();
    return 0;
}

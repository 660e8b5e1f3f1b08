/* The hooks for user-level schedulers, used correctly and wrongly. A call that does not fit the
 * state returns an error and is counted. */
#include <pfp.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script.h"
#include "stolen.h"

/* Only the addresses of these are used, as handles. */
static char a, b, moved, interrupt, swi, elsewhere, unknown, many[PFP_OBJECTS];

/* Calls that pfp must have counted as mismatched. */
static unsigned mismatched;

#define REFUSED(call)                                                                \
    do {                                                                             \
        EXPECT((call) == PFP_EHANDLE);                                               \
        mismatched++;                                                                \
    } while (0)

static uint64_t count(int id)
{
    pfpStats_t stats;
    EXPECT(pfpGetStats(id, &stats) == PFP_OK);
    return stats.n_count;
}

/* Time stolen in `burn` so far. Only one thread burns at a time. */
static long long stolen;

static long long cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Computes until the thread has used `ns` of CPU time; returns the time that it really used. */
static long long burn(long long ns)
{
    long long start = cpu_ns();
    struct account account = account_now();
    while (cpu_ns() - start < ns)
        ;
    stolen += stolen_ns(account);
    return cpu_ns() - start;
}

/* Prints the found value beside the expected one, and the stolen time, all in ticks. */
static void say_both(const char *what, uint64_t found, long long ran_ns)
{
    double rate = pfp_ticks_per_second() / 1e9;
    say("%s %llu %.0f %.0f", what, (unsigned long long)found, (double)ran_ns * rate,
        (double)stolen * rate);
}

static void before_creation(void)
{
    EXPECT(pfpTaskRegister(0) == PFP_ENOTCREATED);
    EXPECT(pfpTaskCreate(&a) == PFP_ENOTCREATED);
    EXPECT(pfpTaskDelete(&a) == PFP_ENOTCREATED);
    EXPECT(pfpTaskReady(&a) == PFP_ENOTCREATED);
    EXPECT(pfpTaskSwitch(NULL, NULL) == PFP_ENOTCREATED);
    EXPECT(pfpHwiBegin(&interrupt) == PFP_ENOTCREATED);
    EXPECT(pfpSwiEnd(&swi) == PFP_ENOTCREATED);
}

static void handles(void)
{
    EXPECT(pfpTaskCreate(NULL) == PFP_ENULL);
    EXPECT(pfpTaskDelete(NULL) == PFP_ENULL);
    EXPECT(pfpHwiReady(NULL) == PFP_ENULL);
    EXPECT(pfpSwiBegin(NULL) == PFP_ENULL);
    EXPECT(pfpHwiEnd(NULL) == PFP_ENULL);
    REFUSED(pfpTaskReady(&unknown));
    REFUSED(pfpTaskSwitch(NULL, &unknown));
    REFUSED(pfpTaskSwitch(&unknown, NULL));
    REFUSED(pfpHwiBegin(&unknown));
    REFUSED(pfpHwiDelete(&unknown));
    REFUSED(pfpBegin(1, &unknown));

    EXPECT(pfpTaskCreate(&a) == PFP_OK);
    EXPECT(pfpTaskCreate(&b) == PFP_OK);
    EXPECT(pfpHwiCreate(&interrupt) == PFP_OK);
    EXPECT(pfpSwiCreate(&swi) == PFP_OK);
    /* Creating a known task changes nothing. */
    EXPECT(pfpTaskCreate(&a) == PFP_OK);
    /* A handle of one kind cannot be used as another kind. */
    REFUSED(pfpHwiCreate(&a));
    REFUSED(pfpHwiBegin(&a));
    REFUSED(pfpTaskSwitch(NULL, &interrupt));
    EXPECT(pfpTaskReady(&a) == PFP_OK && pfpHwiReady(&interrupt) == PFP_OK);
}

static void interrupts(void)
{
    REFUSED(pfpHwiEnd(&interrupt));
    EXPECT(pfpHwiBegin(&interrupt) == PFP_OK);
    REFUSED(pfpHwiBegin(&interrupt));
    EXPECT(pfpSwiBegin(&swi) == PFP_OK);
    /* This interrupt is not the innermost one. */
    REFUSED(pfpHwiEnd(&interrupt));
    EXPECT(pfpBegin(1, &swi) == PFP_OK);
    REFUSED(pfpBegin(1, &interrupt));
    EXPECT(pfpEnd(1, 0) == PFP_OK);
    EXPECT(pfpSwiEnd(&swi) == PFP_OK);
    EXPECT(pfpHwiEnd(&interrupt) == PFP_OK);
    REFUSED(pfpHwiEnd(&interrupt));
    EXPECT(count(1) == 1);
}

static void tasks(void)
{
    /* The call names another task than the running one: it is counted as mismatched, and the
     * switch is made. */
    EXPECT(pfpTaskSwitch(&b, &a) == PFP_OK);
    mismatched++;
    EXPECT(pfpBegin(1, &a) == PFP_OK);
    EXPECT(pfpEnd(1, 0) == PFP_OK);
    EXPECT(pfpTaskSwitch(NULL, &b) == PFP_OK);
    mismatched++;
    EXPECT(pfpTaskSwitch(&b, &a) == PFP_OK);
    REFUSED(pfpTaskDelete(&a));
    EXPECT(pfpBegin(2, &a) == PFP_OK);
    EXPECT(pfpTaskSwitch(&a, NULL) == PFP_OK);
    /* Deleting a task discards its open regions. */
    EXPECT(pfpTaskDelete(&a) == PFP_OK);
    REFUSED(pfpTaskDelete(&a));
    REFUSED(pfpTaskSwitch(NULL, &a));
    REFUSED(pfpBegin(1, &a));
    EXPECT(pfpTaskCreate(&a) == PFP_OK);
    EXPECT(pfpTaskSwitch(NULL, &a) == PFP_OK);
    EXPECT(pfpEnd(2, 0) == PFP_OK);
    EXPECT(count(2) == 0);
    EXPECT(pfpTaskSwitch(&a, NULL) == PFP_OK);
}

/* A switch in an interrupt takes effect when the outermost interrupt ends. */
static void switched_in_an_interrupt(void)
{
    pfpStats_t stats;
    long long ran = 0;

    EXPECT(pfpTaskSwitch(NULL, &a) == PFP_OK);
    EXPECT(pfpBegin(3, &a) == PFP_OK);
    ran += burn(5000000);
    EXPECT(pfpHwiBegin(&interrupt) == PFP_OK);
    EXPECT(pfpSwiBegin(&swi) == PFP_OK);
    EXPECT(pfpTaskSwitch(&a, &b) == PFP_OK);
    EXPECT(pfpBegin(4, &swi) == PFP_OK);
    burn(5000000);
    EXPECT(pfpEnd(4, 0) == PFP_OK);
    EXPECT(pfpSwiEnd(&swi) == PFP_OK);
    REFUSED(pfpBegin(5, &b));
    /* This thread has already switched to task `b`, which runs after the interrupt, so `b` cannot
     * be deleted. */
    REFUSED(pfpTaskDelete(&b));
    EXPECT(pfpHwiEnd(&interrupt) == PFP_OK);
    EXPECT(pfpBegin(5, &b) == PFP_OK);
    burn(3000000);
    EXPECT(pfpEnd(5, 0) == PFP_OK);
    /* Switches to the scheduler itself, and back. */
    EXPECT(pfpHwiBegin(&interrupt) == PFP_OK);
    EXPECT(pfpTaskSwitch(&b, NULL) == PFP_OK);
    EXPECT(pfpTaskSwitch(NULL, &a) == PFP_OK);
    EXPECT(pfpHwiEnd(&interrupt) == PFP_OK);
    ran += burn(5000000);
    EXPECT(pfpEnd(3, 0) == PFP_OK);
    EXPECT(pfpTaskSwitch(&a, NULL) == PFP_OK);
    EXPECT(count(3) == 1 && count(4) == 1 && count(5) == 1);
    EXPECT(pfpGetStats(3, &stats) == PFP_OK);
    say_both("put-aside", stats.c_total, ran);
    EXPECT((double)stats.c_off_cpu > 0.008 * pfp_ticks_per_second());
    EXPECT(stats.c_inclusive == stats.c_total);
}

static int step;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void reach_step(int number)
{
    pthread_mutex_lock(&lock);
    step = number;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for_step(int number)
{
    pthread_mutex_lock(&lock);
    while (step < number)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void *holds_it(void *nothing)
{
    EXPECT(pfpTaskSwitch(NULL, &a) == PFP_OK);
    EXPECT(pfpHwiBegin(&elsewhere) == PFP_OK);
    reach_step(1);
    wait_for_step(2);
    /* The thread's end also ends the task and the interrupt. */
    return nothing;
}

static void running_elsewhere(void)
{
    pthread_t thread;
    EXPECT(pfpHwiCreate(&elsewhere) == PFP_OK);
    EXPECT(pthread_create(&thread, NULL, holds_it, NULL) == 0);
    wait_for_step(1);
    /* The task is interrupted on the other thread, so this thread cannot switch to it or delete
     * it. */
    REFUSED(pfpTaskSwitch(NULL, &a));
    REFUSED(pfpTaskDelete(&a));
    REFUSED(pfpHwiBegin(&elsewhere));
    REFUSED(pfpHwiEnd(&elsewhere));
    REFUSED(pfpHwiDelete(&elsewhere));
    reach_step(2);
    pthread_join(thread, NULL);
    EXPECT(pfpTaskSwitch(NULL, &a) == PFP_OK);
    EXPECT(pfpHwiBegin(&elsewhere) == PFP_OK);
    EXPECT(pfpHwiEnd(&elsewhere) == PFP_OK);
    EXPECT(pfpTaskSwitch(&a, NULL) == PFP_OK);
    EXPECT(pfpHwiDelete(&elsewhere) == PFP_OK);
}

static pfp_point_t *by_name;
static long long moved_ran;

static void *begins_it(void *nothing)
{
    EXPECT(pfpTaskSwitch(NULL, &moved) == PFP_OK);
    EXPECT(pfpBegin(6, &moved) == PFP_OK);
    moved_ran += burn(20000000);
    /* This part is latched here, and the region ends on the other thread. */
    EXPECT(pfp_begin(by_name) == PFP_OK);
    EXPECT(pfp_end(by_name, 1) == PFP_OK);
    EXPECT(pfpTaskSwitch(&moved, NULL) == PFP_OK);
    return nothing;
}

static void *ends_it(void *nothing)
{
    EXPECT(pfpTaskSwitch(NULL, &moved) == PFP_OK);
    moved_ran += burn(20000000);
    EXPECT(pfp_begin(by_name) == PFP_OK);
    EXPECT(pfp_end(by_name, 0) == PFP_OK);
    EXPECT(pfpEnd(6, 0) == PFP_OK);
    EXPECT(pfpTaskSwitch(&moved, NULL) == PFP_OK);
    return nothing;
}

static void moved_to_another_thread(void)
{
    pthread_t thread;
    pfpStats_t stats;
    by_name = pfp_point("latched", NULL, 0);
    EXPECT(pfpTaskCreate(&moved) == PFP_OK);
    EXPECT(pthread_create(&thread, NULL, begins_it, NULL) == 0);
    pthread_join(thread, NULL);
    EXPECT(count(6) == 0);
    burn(3000000);
    EXPECT(pthread_create(&thread, NULL, ends_it, NULL) == 0);
    pthread_join(thread, NULL);
    EXPECT(pfpGetStats(6, &stats) == PFP_OK);
    EXPECT(stats.n_count == 1);
    say_both("moved", stats.c_inclusive, moved_ran);
    EXPECT((double)stats.c_off_cpu >= 0.003 * pfp_ticks_per_second());
    EXPECT(pfp_get_stats(by_name, &stats) == PFP_OK);
    EXPECT(stats.n_count == 1);
    EXPECT(pfpTaskDelete(&moved) == PFP_OK);
}

static void as_many_as_there_can_be(void)
{
    int known = 4, i;
    for (i = 0; i < PFP_OBJECTS - known; i++)
        EXPECT(pfpSwiCreate(&many[i]) == PFP_OK);
    EXPECT(pfpTaskCreate(&many[i]) == PFP_EFULL);
    mismatched++;
    EXPECT(pfpSwiDelete(&many[7]) == PFP_OK);
    EXPECT(pfpTaskCreate(&many[i]) == PFP_OK);
    EXPECT(pfpTaskDelete(&many[i]) == PFP_OK);
    EXPECT(pfpSwiCreate(&many[7]) == PFP_OK);
    for (i = 0; i < PFP_OBJECTS - known; i++)
        EXPECT(pfpSwiDelete(&many[i]) == PFP_OK);
    /* A deleted task frees its slot, so tasks can be created and deleted without limit. */
    for (int round = 0; round < 10000; round++) {
        void *handle = &many[round % PFP_OBJECTS];
        EXPECT(pfpTaskCreate(handle) == PFP_OK);
        EXPECT(pfpTaskSwitch(NULL, handle) == PFP_OK);
        EXPECT(pfpTaskSwitch(handle, NULL) == PFP_OK);
        EXPECT(pfpTaskDelete(handle) == PFP_OK);
    }
    EXPECT(pfpTaskReady(&a) == PFP_OK && pfpSwiReady(&swi) == PFP_OK);
}

/* A forked child knows its parent's tasks, but not the regions that were open in them. */
static void forked(void)
{
    int status;
    pid_t child;
    EXPECT(pfpTaskSwitch(NULL, &a) == PFP_OK);
    EXPECT(pfpBegin(7, &a) == PFP_OK);
    EXPECT(pfpTaskSwitch(&a, &b) == PFP_OK);
    EXPECT(pfpBegin(7, &b) == PFP_OK);
    child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        EXPECT(pfpTaskSwitch(&b, &a) == PFP_OK);
        EXPECT(pfpEnd(7, 0) == PFP_OK);
        EXPECT(count(7) == 0);
        EXPECT(pfpTaskSwitch(&a, &b) == PFP_OK);
        EXPECT(pfpEnd(7, 0) == PFP_OK);
        EXPECT(count(7) == 0);
        EXPECT(pfpBegin(7, &b) == PFP_OK);
        EXPECT(pfpEnd(7, 0) == PFP_OK);
        EXPECT(count(7) == 1);
        EXPECT(pfpTaskSwitch(&b, NULL) == PFP_OK);
        EXPECT(pfpTaskDelete(&b) == PFP_OK);
        exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(pfpEnd(7, 0) == PFP_OK);
    EXPECT(pfpTaskSwitch(&b, &a) == PFP_OK);
    EXPECT(pfpEnd(7, 0) == PFP_OK);
    EXPECT(count(7) == 2);
    EXPECT(pfpTaskSwitch(&a, NULL) == PFP_OK);
}

int main(void)
{
    before_creation();
    EXPECT(pfpCreate() == PFP_OK);
    EXPECT(pfpTaskRegister(0) == PFP_OK && pfpSwiRegister(1) == PFP_OK);
    EXPECT(pfpHwiRegister(-1) == PFP_OK);
    for (int id = 1; id < 8; id++)
        EXPECT(pfpEnable(id) == PFP_OK);
    handles();
    interrupts();
    tasks();
    switched_in_an_interrupt();
    running_elsewhere();
    moved_to_another_thread();
    as_many_as_there_can_be();
    forked();
    say("mismatched %u", mismatched);
    reach("done");
    return 0;
}

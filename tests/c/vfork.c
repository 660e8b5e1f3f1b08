/* Children in their parent's memory that measure a region before they call exec. POSIX does not
 * allow this, but programs do it.
 *
 * vfork HOW WHEN: the way to create the child; and whether its region is the very first one
 * (`first`), its parent has measured before (`later`), or only the process from which its parent
 * was forked has measured (`forked`). */
#include <pfp.h>

#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "script.h"

#define ROUNDS 100

extern char **environ;
static char *program;
/* Calls of `region`, including those of a child that shares this memory. */
static unsigned long long calls;

static void region(void)
{
    PFP_SCOPE("region");
    calls++;
}

/* The child reaches this point before its parent. */
static void another(void)
{
    PFP_SCOPE("another");
}

static long long cpu_ns(void)
{
    struct timespec now;
    EXPECT(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void burn(long long ns)
{
    const long long end = cpu_ns() + ns;
    while (cpu_ns() < end)
        region();
}

static void sleeps(void)
{
    const struct timespec moment = {0, 150000000};
    PFP_SCOPE("sleeps");
    nanosleep(&moment, NULL);
}

/* Runs in a child in its parent's memory. */
static int in_between(void *unused)
{
    (void)unused;
    region();
    another();
    execl(program, program, "another program", (char *)NULL);
    _exit(1);
}

static char stack[1 << 16] __attribute__((aligned(16)));

static pid_t child_of(const char *how)
{
    char *const arguments[] = {program, (char *)"another program", NULL};
    pid_t child = -1;
    if (!strcmp(how, "vfork")) {
        child = vfork();
        if (child == 0)
            in_between(NULL);
    } else if (!strcmp(how, "clone")) {
        child = clone(in_between, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    } else if (!strcmp(how, "copy")) {
        /* A fork that bypasses the C library. */
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0)
            in_between(NULL);
    } else {
        EXPECT(posix_spawn(&child, program, NULL, NULL, arguments, environ) == 0);
    }
    EXPECT(child > 0);
    return child;
}

int main(int count, char **arguments)
{
    pid_t child;
    int status, at;

    program = arguments[0];
    if (count == 2) {
        EXPECT(!strcmp(arguments[1], "another program"));
        for (at = 0; at < ROUNDS; at++)
            region();
        /* Waits to be killed. */
        say("child %d", (int)getpid());
        for (;;)
            pause();
    }
    EXPECT(count == 3);
    if (!strcmp(arguments[2], "forked")) {
        /* Measure, and continue in a forked child, which has not measured. */
        region();
        child = fork();
        EXPECT(child >= 0);
        if (child > 0) {
            EXPECT(waitpid(child, &status, 0) == child);
            return status == 0 ? 0 : 1;
        }
        say("forked %d", (int)getpid());
        calls = 0;
    }
    if (!strcmp(arguments[2], "later"))
        burn(300000000);
    child = child_of(arguments[1]);
    sleeps();
    for (at = 0; at < ROUNDS; at++) {
        region();
        another();
    }
    say("calls %llu", calls);
    reach("done");
    kill(child, SIGKILL);
    EXPECT(waitpid(child, &status, 0) == child);
    return 0;
}

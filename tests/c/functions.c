/* Functions without points in their source, and all ways to leave them. Each part is a scenario
 * with known numbers of calls, which the points must show. */
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Functions of the test itself are not measured. */
#define QUIET __attribute__((no_instrument_function))
#define NOINLINE __attribute__((noinline))

QUIET static void say(const char *, ...);
QUIET static void reach(const char *);
#include "script.h"

static volatile unsigned sink;

/* ---- plain: nested, recursive, static, many times ---- */

NOINLINE void leaf(void)
{
    sink = sink + 1;
}

NOINLINE static unsigned twice(unsigned n)
{
    leaf();
    leaf();
    return n + 1;
}

NOINLINE unsigned recursive(unsigned depth)
{
    return depth == 0 ? twice(0) : recursive(depth - 1) + 1;
}

/* ---- tail calls: the last call replaces its caller ---- */

NOINLINE void tail_even(unsigned n);
NOINLINE void tail_odd(unsigned n)
{
    sink = sink + n;
    if (n)
        tail_even(n - 1);
}
NOINLINE void tail_even(unsigned n)
{
    sink = sink + n;
    if (n)
        tail_odd(n - 1);
}

/* ---- left by longjmp ---- */

static jmp_buf back;
static sigjmp_buf interrupted;

NOINLINE void jumps(unsigned depth)
{
    if (depth)
        jumps(depth - 1);
    if (sink || !depth)
        longjmp(back, 1);
}

NOINLINE void catches(unsigned depth)
{
    if (setjmp(back) == 0)
        jumps(depth);
    leaf();
}

NOINLINE void catches_often(unsigned times)
{
    volatile unsigned n = 0;
    while (n < times) {
        n = n + 1;
        if (setjmp(back) == 0)
            jumps(0);
    }
}

/* ---- a frame that grows ---- */

NOINLINE unsigned grows(unsigned n)
{
    char *bytes = alloca(16 + n % 1000);
    memset(bytes, (int)n, 16);
    leaf();
    return (unsigned)bytes[n % 16] + (n ? grows(n - 1) : 0);
}

/* ---- signal handlers, on a stack of their own ---- */

NOINLINE void in_handler(void)
{
    leaf();
}

static void handler(int number)
{
    (void)number;
    in_handler();
}

static void jumping_handler(int number)
{
    (void)number;
    in_handler();
    siglongjmp(interrupted, 1);
}

NOINLINE void raises(unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        raise(SIGUSR1);
}

NOINLINE void raises_and_comes_back(void)
{
    if (sigsetjmp(interrupted, 1) == 0)
        raise(SIGUSR2);
    leaf();
}

QUIET static void handle(int number, void (*with)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = with;
    action.sa_flags = SA_ONSTACK;
    sigaction(number, &action, NULL);
}

/* ---- threads ---- */

static void *thread(void *argument)
{
    for (unsigned i = 0; i < 1000; i++)
        twice(i);
    if (argument)
        pthread_exit(NULL);
    return NULL;
}

/* ---- enabled and disabled in the middle ---- */

NOINLINE unsigned toggled(unsigned depth, unsigned at)
{
    if (depth == at) {
        reach("middle");
        leaf();
    }
    return depth ? toggled(depth - 1, at) + 1 : 0;
}

/* ---- before main, and after it ---- */

__attribute__((constructor)) static void early(void)
{
    leaf();
}

__attribute__((destructor)) static void late(void)
{
    leaf();
}

QUIET int main(int count, char **arguments)
{
    static char stack[1 << 16];
    stack_t alternate;
    const char *what = count > 1 ? arguments[1] : "";
    memset(&alternate, 0, sizeof alternate);
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, NULL);
    handle(SIGUSR1, handler);
    handle(SIGUSR2, jumping_handler);
    reach("begun");

    if (!strcmp(what, "plain")) {
        for (unsigned i = 0; i < 1000; i++)
            sink = sink + recursive(i % 10);
    } else if (!strcmp(what, "tail")) {
        for (unsigned i = 0; i < 1000; i++)
            tail_even(9);
    } else if (!strcmp(what, "longjmp")) {
        for (unsigned i = 0; i < 1000; i++)
            catches(i % 5);
        catches_often(200000);
        leaf();
    } else if (!strcmp(what, "grows")) {
        for (unsigned i = 0; i < 100; i++)
            sink = sink + grows(9);
    } else if (!strcmp(what, "signals")) {
        for (unsigned i = 0; i < 100; i++)
            raises(10);
        for (unsigned i = 0; i < 1000; i++)
            raises_and_comes_back();
        leaf();
    } else if (!strcmp(what, "threads")) {
        pthread_t threads[4];
        for (unsigned i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, thread, i % 2 ? stack : NULL);
        for (unsigned i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    } else if (!strcmp(what, "fork")) {
        pid_t child;
        leaf();
        child = fork();
        if (child == 0) {
            for (unsigned i = 0; i < 10; i++)
                twice(i);
            say("child %d", (int)getpid());
            reach("forked");
            _exit(0);
        }
        waitpid(child, NULL, 0);
    } else if (!strcmp(what, "toggled")) {
        for (unsigned i = 0; i < 2; i++)
            sink = sink + toggled(9, 5);
    } else if (!strcmp(what, "deep")) {
        sink = sink + recursive(1000);
    } else if (!strcmp(what, "status")) {
        return 7;
    }
    reach("done");
    return 0;
}

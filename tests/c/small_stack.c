/* How much of a stack for signal handlers the library takes: what was painted and is not
 * any more. With `small`, the stack is the least that a kernel takes and 6 KiB. */
#include <pfp.h>

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "script.h"

enum { LARGE = 1 << 16, PAINT = 0xa5 };
#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

static unsigned char *stack;
static size_t size = LARGE;
static uintptr_t top;

static void handle(int number)
{
    /* What lies above is the kernel's, which saves the processor's registers there. */
    top = (uintptr_t)&number;
    PFP_SCOPE("in a handler");
}

/* A signal; what its handler has taken. */
static unsigned used(void)
{
    size_t untouched = 0;
    memset(stack, PAINT, size);
    raise(SIGUSR1);
    while (stack[untouched] == PAINT)
        untouched++;
    return (unsigned)(top - (uintptr_t)(stack + untouched));
}

int main(int argc, char **argv)
{
    stack_t other;
    struct sigaction action;
    size_t least = getauxval(AT_MINSIGSTKSZ);
    if (argc > 1 && strcmp(argv[1], "small") == 0)
        size = ((least ? least : 4096) + 6144 + 4095) / 4096 * 4096;
    /* Below it lies a page that nobody may touch. */
    stack = (unsigned char *)mmap(NULL, size + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(stack != MAP_FAILED);
    stack += 4096;
    EXPECT(mprotect(stack, size, PROT_READ | PROT_WRITE) == 0);
    memset(&other, 0, sizeof other);
    memset(&action, 0, sizeof action);
    other.ss_sp = stack;
    other.ss_size = size;
    action.sa_handler = handle;
    action.sa_flags = SA_ONSTACK;
    EXPECT(sigaltstack(&other, NULL) == 0);
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    say("first %u", used());
    /* Made now, if it was not. */
    EXPECT(pfpCreate() == PFP_OK);
    say("second %u", used());
    say("third %u", used());
    reach("done");
    return 0;
}

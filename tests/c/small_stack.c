/* Measures how much stack of a signal handler the library uses, by painting the stack first. With
 * `least`, the stack is 512 bytes larger than the kernel's minimum, and the bytes that are written
 * below the stack are counted. With `small`, the stack is 6 KiB larger than the minimum. */
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
    /* The kernel saves the processor's registers above this address. */
    top = (uintptr_t)&number;
    PFP_SCOPE("in a handler");
}

/* Raises a signal; returns the bytes of stack that its handler has used. */
static unsigned used(void)
{
    size_t untouched = 0;
    memset(stack, PAINT, size);
    raise(SIGUSR1);
    while (stack[untouched] == PAINT)
        untouched++;
    return (unsigned)(top - (uintptr_t)(stack + untouched));
}

/* The small stack, and below it memory that handlers must not overwrite. */
enum { BELOW = 1 << 14 };
static struct {
    unsigned char below[BELOW];
    unsigned char stack[1 << 16];
} memory __attribute__((aligned(4096)));
static pfp_point_t *known, *by_hand, *amounts;
static int kind;
static const uint64_t some[2] = {1, 2};

static void handle_on_little(int number)
{
    (void)number;
    if (kind == 0) {
        PFP_SCOPE_OF(known);
    } else if (kind == 1) {
        pfp_begin(by_hand);
        pfp_end(by_hand, 0);
    } else if (kind == 2) {
        PFP_METERED("with amounts", (uint64_t)kind, (uint64_t)(number + kind));
    } else if (kind == 3) {
        PFP_SCOPE("new in a handler");
    } else {
        pfp_begin(amounts);
        pfp_end_amounts(amounts, 0, some, 2);
    }
}

/* Number of bytes below the stack that handlers have overwritten. */
static unsigned overwritten(size_t least)
{
    size_t untouched = 0;
    int at;
    stack_t other;
    memset(&memory, PAINT, sizeof memory);
    memset(&other, 0, sizeof other);
    other.ss_sp = memory.stack;
    other.ss_size = least + 512;
    EXPECT(sigaltstack(&other, NULL) == 0);
    for (at = 0; at < 20000; at++) {
        raise(SIGUSR2);
        /* This region writes records, too, so that different ends in the handler find a full page
         * of records. The region also makes handlers find an outdated clock reading. */
        PFP_SCOPE_OF(known);
    }
    while (untouched < BELOW && memory.below[untouched] == PAINT)
        untouched++;
    return (unsigned)(BELOW - untouched);
}

static int on_little(size_t least)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle_on_little;
    action.sa_flags = SA_ONSTACK;
    EXPECT(sigaction(SIGUSR2, &action, NULL) == 0);
    known = pfp_point("known", "", 1);
    by_hand = pfp_point("by hand", "", 1);
    amounts = pfp_point_amounts("amounts", "", 1, "a,b");
    {
        PFP_SCOPE_OF(known);
    }
    for (kind = 0; kind < 5; kind++)
        say("overwritten %u", overwritten(least));
    reach("done");
    return 0;
}

int main(int argc, char **argv)
{
    stack_t other;
    struct sigaction action;
    size_t least = getauxval(AT_MINSIGSTKSZ);
    if (argc > 1 && strcmp(argv[1], "least") == 0)
        return on_little(least ? least : 4096);
    if (argc > 1 && strcmp(argv[1], "small") == 0)
        size = ((least ? least : 4096) + 6144 + 4095) / 4096 * 4096;
    /* The page below the stack is inaccessible. */
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
    /* Creates the segment, if the handler did not. */
    EXPECT(pfpCreate() == PFP_OK);
    say("second %u", used());
    say("third %u", used());
    reach("done");
    return 0;
}

/* Single-stepping: while it is on, SIGTRAP comes after each instruction. For x86-64.
 *
 * A step takes some ten microseconds, a breakpoint two. So a handler can save steps. If it knows
 * all instructions up to a breakpoint ahead and none of them jumps, it continues at full speed to
 * that breakpoint. It emulates a jump, call or return at the breakpoint itself. */
#ifndef SINGLE_STEP_H
#define SINGLE_STEP_H

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "script.h"

#define TRAP_FLAG 0x100UL
#define INT3 0xcc

/* Turns stepping on or off. */
__attribute__((unused)) static inline void single_step(int on)
{
    unsigned long flags;
    __asm__ volatile("pushfq; popq %0" : "=r"(flags));
    flags = on ? flags | TRAP_FLAG : flags & ~TRAP_FLAG;
    __asm__ volatile("pushq %0; popfq" : : "r"(flags) : "memory", "cc");
}

/* Turns stepping off in the code that a handler has interrupted. */
__attribute__((unused)) static inline void step_no_more(void *context)
{
    ucontext_t *interrupted = (ucontext_t *)context;
    interrupted->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

/* Makes the page of an address writable for breakpoints; returns whether that worked. */
static int make_writable(unsigned long address)
{
    /* Pages that were tried before: the last bit is the result. */
    static unsigned long known[1024];
    const unsigned long page = address >> 12;
    unsigned long *const of_page = &known[page % (sizeof known / sizeof known[0])];
    if (*of_page >> 1 != page) {
        const int all = PROT_READ | PROT_WRITE | PROT_EXEC;
        *of_page = page << 1 | (mprotect((void *)(page << 12), 0x1000, all) == 0);
    }
    return *of_page & 1;
}

/* A hash table with the length and the address of each stepped instruction that always continues at
 * the next one; 0 is an empty entry. A forked child shares the table with its parent. */
#define KNOWN_MOST (1UL << 16)
static unsigned long *known_lengths;

__attribute__((unused)) static void share_known(void)
{
    const int ours = MAP_SHARED | MAP_ANONYMOUS;
    void *shared = mmap(0, KNOWN_MOST * sizeof(long), PROT_READ | PROT_WRITE, ours, -1, 0);
    EXPECT(shared != MAP_FAILED);
    known_lengths = (unsigned long *)shared;
}

static unsigned long *known_at(unsigned long address)
{
    unsigned long at = address * 0x9e3779b97f4a7c15UL >> 48, tries;
    if (!known_lengths)
        share_known();
    for (tries = 0; tries < 16; tries++, at = (at + 1) % KNOWN_MOST)
        if (!known_lengths[at] || known_lengths[at] >> 4 == address)
            return &known_lengths[at];
    return 0;
}

static unsigned long length_at(unsigned long address)
{
    const unsigned long *known = known_at(address);
    return known ? *known & 15 : 0;
}

/* Skips the prefixes of an instruction. */
static const unsigned char *operation_at(unsigned long address)
{
    const unsigned char *at = (const unsigned char *)address;
    while (*at && strchr("\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3", *at))
        at++;
    return at + ((*at & 0xf0) == 0x40);
}

/* Whether the instruction may continue elsewhere than at the next one, or may change the trap
 * flag. */
static int leads_elsewhere(unsigned long address)
{
    const unsigned char *at = operation_at(address);
    if (*at == 0x0f)
        return (at[1] & 0xf0) == 0x80 || at[1] == 0x05 || at[1] == 0x34;
    if (*at == 0xff)
        return (at[1] >> 3 & 7) >= 2 && (at[1] >> 3 & 7) <= 5;
    return (*at & 0xf0) == 0x70 || (*at & 0xfc) == 0xe0 || (*at >= 0xe8 && *at <= 0xeb)
        || (*at && strchr("\x9d\xc2\xc3\xca\xcb\xcc\xcd\xcf", *at))
        || (*at == 0xc7 && at[1] == 0xf8);
}

/* stepped_from: address of the instruction that is stepped now, or 0. steps_ahead: number of
 * instructions until the breakpoint ahead. ahead: the breakpoint's address, or 0. byte_ahead: the
 * byte that the breakpoint replaced. */
static unsigned long stepped_from, steps_ahead;
static unsigned char *ahead, byte_ahead;

/* Call this first in the handler of SIGTRAP. Returns the number of instructions executed since the
 * last call. */
__attribute__((unused)) static unsigned long steps_done(void *context)
{
    greg_t *const registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    unsigned long done = 1, here, length;

    if (ahead) {
        *(volatile unsigned char *)ahead = byte_ahead;
        ahead = 0;
        registers[REG_RIP]--;
        registers[REG_EFL] |= (greg_t)TRAP_FLAG;
        done = steps_ahead;
    }
    here = (unsigned long)registers[REG_RIP];
    length = here - stepped_from;
    if (stepped_from && length - 1 < 15 && !leads_elsewhere(stepped_from)) {
        unsigned long *known = known_at(stepped_from);
        if (known)
            *known = stepped_from << 4 | length;
    }
    stepped_from = 0;
    return done;
}

/* Emulates the next instruction if it is a near jump, call or return; returns whether it is one. */
__attribute__((unused)) static int step_aside(void *context)
{
    greg_t *const registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned long flags = (unsigned long)registers[REG_EFL];
    const unsigned long here = (unsigned long)registers[REG_RIP];
    const unsigned char *at = (const unsigned char *)here;
    unsigned long to, behind;
    int far = 0, near;

    if (!(flags & TRAP_FLAG))
        return 0;
    if (*at == 0xc3) {
        registers[REG_RIP] = *(greg_t *)registers[REG_RSP];
        registers[REG_RSP] += 8;
        return 1;
    }
    if (*at == 0x0f && (at[1] & 0xf0) == 0x80)
        at++, far = 1;
    near = (*at & 0xf0) == 0x70 || *at == 0xeb;
    if (!near && !far && *at != 0xe8 && *at != 0xe9)
        return 0;
    if (near) {
        behind = (unsigned long)(at + 2);
        to = behind + (unsigned long)(signed char)at[1];
    } else {
        int distance;
        memcpy(&distance, at + 1, sizeof distance);
        behind = (unsigned long)(at + 5);
        to = behind + (unsigned long)distance;
    }
    if (far || (*at & 0xf0) == 0x70) {
        const int carry = flags & 1, parity = flags >> 2 & 1, zero = flags >> 6 & 1;
        const int sign = flags >> 7 & 1, overflow = flags >> 11 & 1, less = sign != overflow;
        const int holds[] = {overflow, carry, zero, carry || zero, sign, parity, less, less || zero};
        if (holds[*at >> 1 & 7] == (*at & 1))
            to = behind;
    } else if (*at == 0xe8) {
        registers[REG_RSP] -= 8;
        *(unsigned long *)registers[REG_RSP] = behind;
    }
    registers[REG_RIP] = (greg_t)to;
    return 1;
}

/* Call this last in the handler. Continues to the next trap, which comes after at most `most`
 * instructions. */
__attribute__((unused)) static void step_on(void *context, unsigned long most)
{
    greg_t *const registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    unsigned long length, to = (unsigned long)registers[REG_RIP];

    if (!((unsigned long)registers[REG_EFL] & TRAP_FLAG))
        return;
    stepped_from = to;
    for (steps_ahead = 0; steps_ahead < most && (length = length_at(to)) != 0; steps_ahead++)
        to += length;
    if (!steps_ahead || !make_writable(to))
        return;
    ahead = (unsigned char *)to;
    byte_ahead = *ahead;
    *(volatile unsigned char *)ahead = INT3;
    stepped_from = 0;
    step_no_more(context);
}

#endif

/* Single steps: while they are on, SIGTRAP comes after each instruction. For x86-64. */
#ifndef SINGLE_STEP_H
#define SINGLE_STEP_H

#include <ucontext.h>

#define TRAP_FLAG 0x100UL

/* Switches them on or off. */
__attribute__((unused)) static inline void single_step(int on)
{
    unsigned long flags;
    __asm__ volatile("pushfq; popq %0" : "=r"(flags));
    flags = on ? flags | TRAP_FLAG : flags & ~TRAP_FLAG;
    __asm__ volatile("pushq %0; popfq" : : "r"(flags) : "memory", "cc");
}

/* Switches them off in what a handler has interrupted. */
__attribute__((unused)) static inline void step_no_more(void *context)
{
    ucontext_t *interrupted = (ucontext_t *)context;
    interrupted->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

#endif

//! Programs with MemorySanitizer, which takes each value that a library without it has written for
//! uninitialized, and ends the program at the first use. A child of a measured program inherits the
//! preloaded libpfp, so libpfp itself must find out.

// In assembly: no stable attribute makes a symbol weak.
std::arch::global_asm!(
    ".weak __msan_init",
    ".pushsection .data.rel.ro.pfp_msan_init, \"aw\"",
    ".globl pfp_msan_init",
    ".hidden pfp_msan_init",
    ".balign 8",
    "pfp_msan_init:",
    ".quad __msan_init",
    ".popsection",
);

unsafe extern "C" {
    /// The address of the symbol, or 0 if no object defines it. Nothing writes to that word once the
    /// program has started.
    static pfp_msan_init: usize;
}

/// Whether MemorySanitizer is in the program. Takes no lock: the loader has looked up the symbol.
pub(super) fn checks_every_value() -> bool {
    // SAFETY: the word above, which the loader has written.
    unsafe { pfp_msan_init != 0 }
}

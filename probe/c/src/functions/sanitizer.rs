//! Programs with MemorySanitizer, which takes each value that a library without it has written for
//! uninitialized, and ends the program at the first use. A child of a measured program inherits the
//! preloaded libpfp, so libpfp itself must find out.

/// Whether MemorySanitizer is in the program. Takes no lock: the loader has looked up the symbol.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn checks_every_value() -> bool {
    let init: usize;
    // SAFETY: reads the word of the global offset table that holds the address of the symbol, or 0
    // if no object defines it. Nothing writes to that word once the program has started.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            ".weak __msan_init",
            "mov {init}, qword ptr [rip + __msan_init@GOTPCREL]",
            init = out(reg) init,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    // SAFETY: reads the word of the global offset table that holds the address of the symbol, or 0
    // if no object defines it. Nothing writes to that word once the program has started.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            ".weak __msan_init",
            "adrp {init}, :got:__msan_init",
            "ldr {init}, [{init}, :got_lo12:__msan_init]",
            init = out(reg) init,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    init != 0
}

/// Hooks for other processors do nothing.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn checks_every_value() -> bool {
    false
}

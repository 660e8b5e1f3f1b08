//! Detection of MemorySanitizer, which treats each value written by an uninstrumented library as
//! uninitialized and ends the program at its first use. A child of a measured program inherits the
//! preloaded libpfp, so libpfp itself must detect this.

/// Whether MemorySanitizer is in the program. Takes no lock, because the loader has already looked
/// up the symbol.
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

/// The hooks for other processors do nothing, so there is nothing to check.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn checks_every_value() -> bool {
    // SAFETY: the word above, which the loader has written.
    unsafe { pfp_msan_init != 0 }
}

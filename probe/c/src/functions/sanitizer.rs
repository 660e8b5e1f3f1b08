//! Detects programs with MemorySanitizer, in which no functions are measured. The sanitizer does
//! not see writes by libraries that are built without it, such as libpfp. It takes the written
//! memory for uninitialized, and ends the program at the first use. A child of a measured program
//! inherits the preloaded libpfp, so libpfp itself must detect the sanitizer.

/// Loads the address of a symbol into `{address}`, or 0 if no object defines the symbol.
#[cfg(target_arch = "x86_64")]
macro_rules! load_weak {
    ($symbol:literal) => {
        concat!(".weak ", $symbol, "\n mov {address}, qword ptr [rip + ", $symbol, "@GOTPCREL]")
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! load_weak {
    ($symbol:literal) => {
        concat!(
            ".weak ",
            $symbol,
            "\n adrp {address}, :got:",
            $symbol,
            "\n ldr {address}, [{address}, :got_lo12:",
            $symbol,
            "]"
        )
    };
}

/// Whether MemorySanitizer is in the program. Takes no lock: the loader has looked up the symbol.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn checks_every_value() -> bool {
    let address: usize;
    // Written in assembly, because no stable attribute makes a symbol weak.
    // SAFETY: reads a word of the table of addresses, which the loader has written before any code
    // of this object runs.
    unsafe {
        std::arch::asm!(
            load_weak!("__msan_init"),
            address = out(reg) address,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    address != 0
}

/// Always false: the look-up above is written in the assembly of two processors only.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn checks_every_value() -> bool {
    false
}

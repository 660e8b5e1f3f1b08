//! The hooks as the compiler calls them. What tells one frame of a function from
//! another one are the registers at the very beginning, which only bare machine
//! code can hand on.

#[cfg(target_arch = "x86_64")]
mod hooks {
    use std::arch::naked_asm;

    /// The beginning of a function; see `pfp.h`.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub(crate) unsafe extern "C" fn __cyg_profile_func_enter() {
        naked_asm!(
            "mov rdx, rsp",
            "mov rcx, [rsp]",
            "mov r8, rbp",
            "jmp {enter}",
            enter = sym crate::functions::enter,
        )
    }

    /// The end of a function; see `pfp.h`.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub(crate) unsafe extern "C" fn __cyg_profile_func_exit() {
        naked_asm!(
            "mov rdx, rsp",
            "mov rcx, [rsp]",
            "mov r8, rbp",
            "jmp {exit}",
            exit = sym crate::functions::exit,
        )
    }
}

#[cfg(target_arch = "aarch64")]
mod hooks {
    use std::arch::naked_asm;

    /// The beginning of a function; see `pfp.h`.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub(crate) unsafe extern "C" fn __cyg_profile_func_enter() {
        naked_asm!(
            "mov x2, sp",
            "mov x3, x30",
            "mov x4, x29",
            "b {enter}",
            enter = sym crate::functions::enter,
        )
    }

    /// The end of a function; see `pfp.h`.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub(crate) unsafe extern "C" fn __cyg_profile_func_exit() {
        naked_asm!(
            "mov x2, sp",
            "mov x3, x30",
            "mov x4, x29",
            "b {exit}",
            exit = sym crate::functions::exit,
        )
    }
}

/// Elsewhere the hooks are there, so that programs link, and do nothing.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod hooks {
    /// The beginning of a function; see `pfp.h`.
    #[unsafe(no_mangle)]
    pub(crate) extern "C" fn __cyg_profile_func_enter(_function: usize, _site: usize) {}

    /// The end of a function; see `pfp.h`.
    #[unsafe(no_mangle)]
    pub(crate) extern "C" fn __cyg_profile_func_exit(_function: usize, _site: usize) {}
}

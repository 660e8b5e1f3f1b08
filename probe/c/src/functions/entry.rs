//! The hooks that the compiler calls. The stack pointer and the return address at a hook's first
//! instruction identify a frame, so the hooks are bare machine code, which passes them on.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod hooks {
    use std::arch::naked_asm;

    /// Hook at the start of a function; see `pfp.h`.
    ///
    /// # Safety
    ///
    /// The first two arguments are the function's address and its call site.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub(crate) unsafe extern "C" fn __cyg_profile_func_enter() {
        naked_asm!(
            // As `enter` does: the first place in the table, the word of its point.
            "mov rax, qword ptr [rip + {table}]",
            "test rax, rax",
            "je 2f",
            "mov edx, edi",
            "and edx, {within}",
            "cmp qword ptr [rax + rdx], rdi",
            "jne 2f",
            "mov r9, qword ptr [rax + rdx + {point}]",
            "test r9, r9",
            "je 2f",
            "mov rax, qword ptr [r9]",
            "test byte ptr [rax], 1",
            "jne 3f",
            "ret",
            "2:",
            "mov rdx, rsp",
            "mov rcx, [rsp]",
            "mov r8, rbp",
            "jmp {further}",
            "3:",
            "mov rdx, rsp",
            "mov rcx, [rsp]",
            "mov r8, rbp",
            "jmp {on}",
            table = sym crate::functions::table::TABLE,
            within = const crate::functions::table::WITHIN,
            point = const crate::functions::table::POINT,
            further = sym crate::functions::enter_further,
            on = sym crate::functions::enter_on,
        )
    }

    /// Hook at the end of a function; see `pfp.h`.
    ///
    /// # Safety
    ///
    /// The first two arguments are the function's address and its call site.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub(crate) unsafe extern "C" fn __cyg_profile_func_exit() {
        naked_asm!(
            // As `exit` does.
            "mov rax, qword ptr [rip + {distance}]",
            "test rax, rax",
            "je 3f",
            "cmp rdi, qword ptr fs:[rax]",
            "je 2f",
            "cmp rsp, qword ptr fs:[rax + 8]",
            "jae 2f",
            "3:",
            "ret",
            "2:",
            "mov rdx, rsp",
            "mov rcx, [rsp]",
            "mov r8, rbp",
            "jmp {exit}",
            distance = sym crate::functions::top::DISTANCE,
            exit = sym crate::functions::exit_further,
        )
    }
}

#[cfg(target_arch = "aarch64")]
mod hooks {
    use std::arch::naked_asm;

    /// Hook at the start of a function; see `pfp.h`.
    ///
    /// # Safety
    ///
    /// The first two arguments are the function's address and its call site.
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

    /// Hook at the end of a function; see `pfp.h`.
    ///
    /// # Safety
    ///
    /// The first two arguments are the function's address and its call site.
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

/// On other processors, the hooks exist so that programs link, and do nothing.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod hooks {
    /// Hook at the start of a function; see `pfp.h`.
    #[unsafe(no_mangle)]
    pub(crate) extern "C" fn __cyg_profile_func_enter(_function: usize, _site: usize) {}

    /// Hook at the end of a function; see `pfp.h`.
    #[unsafe(no_mangle)]
    pub(crate) extern "C" fn __cyg_profile_func_exit(_function: usize, _site: usize) {}
}

/// Defines a function that calls a hook with a function's address and a call site.
macro_rules! called {
    ($(#[$doc:meta])* $name:ident, $hook:path) => {
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name(function: usize, site: usize) {
            let hook = $hook as *const ();
            // SAFETY: every hook takes these two arguments, and may be called with any values.
            let hook: extern "C" fn(usize, usize) = unsafe { std::mem::transmute(hook) };
            hook(function, site);
        }
    };
}

called!(
    /// Calls the hook for a function's start.
    begin,
    hooks::__cyg_profile_func_enter
);
called!(
    /// Calls the hook for a function's end.
    end,
    hooks::__cyg_profile_func_exit
);

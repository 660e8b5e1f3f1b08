//! The hooks as the compiler calls them. Only the registers at the very beginning of a hook
//! distinguish one frame of a function from another, and only assembly can pass these registers on.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod hooks {
    use std::arch::naked_asm;

    /// Defines a hook by its instructions and their operands.
    macro_rules! hook {
        ($(#[$doc:meta])* $name:ident: $($asm:tt)*) => {
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub(crate) unsafe extern "C" fn $name() {
                naked_asm!($($asm)*)
            }
        };
    }

    /// The instructions that pass the stack pointer, the return address and the frame pointer on to
    /// a function, after the two arguments of the hook.
    #[cfg(target_arch = "x86_64")]
    macro_rules! hand_on {
        ($to:literal) => {
            concat!("mov rdx, rsp\n mov rcx, [rsp]\n mov r8, rbp\n jmp {", $to, "}")
        };
    }
    #[cfg(target_arch = "aarch64")]
    macro_rules! hand_on {
        ($to:literal) => {
            concat!("mov x2, sp\n mov x3, x30\n mov x4, x29\n b {", $to, "}")
        };
    }

    #[cfg(target_arch = "x86_64")]
    hook!(
        /// The beginning of a function; see `pfp.h`.
        __cyg_profile_func_enter:
        // Like `enter`, checks the first entry of the table that may have the function, then the
        // word of its point.
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
        hand_on!("further"),
        "3:",
        hand_on!("on"),
        table = sym crate::functions::table::TABLE,
        within = const crate::functions::table::WITHIN,
        point = const crate::functions::table::POINT,
        further = sym crate::functions::enter_further,
        on = sym crate::functions::enter_on,
    );
    #[cfg(target_arch = "aarch64")]
    hook!(
        /// The beginning of a function; see `pfp.h`.
        __cyg_profile_func_enter:
        hand_on!("enter"),
        enter = sym crate::functions::enter,
    );

    #[cfg(target_arch = "x86_64")]
    hook!(
        /// The end of a function; see `pfp.h`.
        __cyg_profile_func_exit:
        // Like `exit`, checks whether a measured function may have ended.
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
        hand_on!("exit"),
        distance = sym crate::functions::top::DISTANCE,
        exit = sym crate::functions::exit_further,
    );
    #[cfg(target_arch = "aarch64")]
    hook!(
        /// The end of a function; see `pfp.h`.
        __cyg_profile_func_exit:
        hand_on!("exit"),
        exit = sym crate::functions::exit,
    );
}

/// On other processors the hooks exist only so that programs link. They do nothing.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod hooks {
    /// The beginning of a function; see `pfp.h`.
    #[unsafe(no_mangle)]
    pub(crate) extern "C" fn __cyg_profile_func_enter(_function: usize, _site: usize) {}

    /// The end of a function; see `pfp.h`.
    #[unsafe(no_mangle)]
    pub(crate) extern "C" fn __cyg_profile_func_exit(_function: usize, _site: usize) {}
}

/// Defines a function that calls a hook with the address of a function and its call site.
macro_rules! called {
    ($(#[$doc:meta])* $name:ident, $hook:path) => {
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name(function: usize, site: usize) {
            let hook = $hook as *const ();
            // SAFETY: each hook takes these two arguments.
            let hook: extern "C" fn(usize, usize) = unsafe { std::mem::transmute(hook) };
            hook(function, site);
        }
    };
}

called!(
    /// Calls the hook at a function's beginning.
    begin,
    hooks::__cyg_profile_func_enter
);
called!(
    /// Calls the hook at a function's end.
    end,
    hooks::__cyg_profile_func_exit
);

//! Which signals were ignored when this process started.
//!
//! `nohup` and `trap ''` start a program with signals ignored. Such a signal stays ignored here,
//! and in programs that are started from here.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_int;

/// Whether SIGPIPE was ignored before Rust's runtime ignored it.
///
/// Relaxed: written before `main`, while there is one thread.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime starts.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_PIPE: extern "C" fn() = note_pipe;

extern "C" fn note_pipe() {
    PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

/// Whether a signal is ignored now.
pub(crate) fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: an all-zero `sigaction` is a valid value, and the call only writes to it.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Makes a command inherit the ignored and blocked signals that this process started with. Rust
/// would reset SIGPIPE and the signal mask; the rest is inherited anyway.
pub(crate) fn pass_on(command: &mut Command) {
    let ignores_pipe = PIPE_WAS_IGNORED.load(Ordering::Relaxed);
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: an all-zero `sigset_t` is a valid value, and the call only writes to it.
    let mask = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), mask.as_mut_ptr());
        mask.assume_init()
    };
    let set = move || {
        // SAFETY: `mask` is initialized and owned by the closure; no handler is installed.
        let failed = unsafe {
            if ignores_pipe {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut())
        };
        if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
    };
    // SAFETY: the closure makes async-signal-safe calls only and does not allocate.
    unsafe { command.pre_exec(set) };
}

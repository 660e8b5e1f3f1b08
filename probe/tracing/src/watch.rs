//! Points that are switched off and on again: callsites are told, by a thread that runs while any
//! is off. What is off costs the program one load and a branch then.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tracing_core::callsite;

use crate::site::Site;

/// Time between two looks. Telling takes a lock of the crate `tracing-core`, and looks at all
/// callsites.
const PERIOD: Duration = Duration::from_millis(100);

/// The process whose thread watches; 0 if none does.
static WATCHING: AtomicU32 = AtomicU32::new(0);

/// Sees to it that somebody watches.
#[cold]
pub(crate) fn begin() {
    let here = std::process::id();
    let before = WATCHING.load(Relaxed);
    if before == here || WATCHING.compare_exchange(before, here, Relaxed, Relaxed).is_err() {
        return;
    }
    pfp::c::keeping_errno(|| {
        let signals = Signals::block();
        let thread = thread::Builder::new().name("pfp-tracing".to_owned()).spawn(run);
        drop(signals);
        if thread.is_err() {
            WATCHING.store(0, Relaxed);
        }
    });
}

fn run() {
    loop {
        thread::sleep(PERIOD);
        if Site::all().any(Site::has_changed) {
            callsite::rebuild_interest_cache();
        }
        if !Site::all().any(Site::is_off) {
            WATCHING.store(0, Relaxed);
            // One that was switched off since is seen by its next span.
            if !Site::all().any(Site::is_off) {
                return;
            }
            begin();
            return;
        }
    }
}

/// The program's signals are not for the thread.
struct Signals(libc::sigset_t);

impl Signals {
    fn block() -> Self {
        // SAFETY: sets of plain words, which the calls fill.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: what it was.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

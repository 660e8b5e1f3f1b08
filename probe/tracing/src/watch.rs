//! Updates callsites when points are switched off or on. A thread does this while any point is off,
//! so that a span whose point is off costs the program only one load and one branch.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use std::{panic, ptr, thread};

use tracing_core::callsite;

use crate::site::Site;

/// Time between two checks. An update takes a lock of the crate `tracing-core`, and visits all
/// callsites.
const PERIOD: Duration = Duration::from_millis(100);

/// Size of the thread's stack, the default of the standard library.
const STACK: usize = 2 << 20;

/// Process whose thread watches; 0 if no thread does.
static WATCHING: AtomicU32 = AtomicU32::new(0);

/// Starts the watching thread, unless it runs.
#[cold]
pub(crate) fn begin() {
    let here = std::process::id();
    let before = WATCHING.load(Relaxed);
    if before == here || WATCHING.compare_exchange(before, here, Relaxed, Relaxed).is_err() {
        return;
    }
    pfp::c::keeping_errno(|| {
        let signals = Signals::block();
        let is_begun = start();
        drop(signals);
        if !is_begun {
            WATCHING.store(0, Relaxed);
        }
    });
}

/// Starts a thread that runs [`run`]. The standard library is not used, because it ends the program
/// if there is no memory for a thread. False if the system refuses the thread.
fn start() -> bool {
    // SAFETY: the attributes are initialized before they are used, and destroyed afterwards; `main`
    // ignores its argument.
    unsafe {
        let (mut how, mut thread) = (std::mem::zeroed(), std::mem::zeroed());
        if libc::pthread_attr_init(&raw mut how) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(&raw mut how, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&raw mut how, STACK);
        let refused = libc::pthread_create(&raw mut thread, &raw const how, main, ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut how);
        refused == 0
    }
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    // SAFETY: the name is a NUL-terminated literal.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"pfp-tracing".as_ptr()) };
    // A subscriber that panics ends this thread, and not the program.
    let _ = panic::catch_unwind(run);
    ptr::null_mut()
}

fn run() {
    loop {
        thread::sleep(PERIOD);
        if Site::all().any(Site::has_changed) {
            callsite::rebuild_interest_cache();
        }
        if !Site::all().any(Site::is_off) {
            WATCHING.store(0, Relaxed);
            // A callsite that was found off since the check above started no thread, because this
            // one still counted as running. So the check is repeated.
            if !Site::all().any(Site::is_off) {
                return;
            }
            begin();
            return;
        }
    }
}

/// The calling thread's former signal mask, restored when dropped. Until then, all signals are
/// blocked, so a thread that is created inherits the block and never runs the program's signal
/// handlers.
struct Signals(libc::sigset_t);

impl Signals {
    fn block() -> Self {
        // SAFETY: the calls fill these two local signal sets, for which zeros are valid.
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
        // SAFETY: `self.0` is the mask that `block` read.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

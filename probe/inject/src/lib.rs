//! libpfp_inject: a library that runtimes load by an environment variable, and which measures
//! what they tell it.
//!
//! ```text
//! nvtx, itt, kokkos: names   --> names --> stack (regions of a thread)
//!                                      \-> spans (of the wall clock)
//! ompt: addresses            --> parallel regions
//! ```
//!
//! Nothing here takes a lock; memory is allocated where a name is met for the first time.

mod itt;
mod kokkos;
mod names;
mod nvtx;
mod ompt;
mod own;
mod spans;
mod stack;
mod table;

use std::time::Duration;

use names::Text;

/// Makes the segment before the program goes on: threads whose first annotations come together
/// lose none. Called where a runtime loads this library.
fn get_ready() {
    /// Another thread takes a millisecond or two for it.
    const TRIES: u32 = 1000;
    pfp::c::keeping_errno(|| {
        for _ in 0..TRIES {
            match pfp::init() {
                Err(pfp::InitError::Busy) => std::thread::sleep(Duration::from_micros(200)),
                _ => return,
            }
        }
    });
}

/// Names a thread, if it is the calling one.
fn this_thread(thread: u32, name: &'static Text) {
    // SAFETY: asks for a number.
    if unsafe { libc::gettid() } as u32 == thread {
        pfp::c::keeping_errno(|| pfp::register_thread(name.name()));
    }
}

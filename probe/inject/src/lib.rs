//! libpfp_inject: a library that runtimes load if an environment variable names it. The library
//! measures the events that the runtimes report.
//!
//! ```text
//! nvtx, itt, kokkos: names   --> names --> pfp::stack (regions of a thread)
//!                                      \-> spans (of the wall clock)
//! ompt: addresses            --> parallel regions
//! ```
//!
//! The code here takes no lock, and allocates memory only when it sees a name for the first time.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_macros))]

mod itt;
mod kokkos;
mod names;
mod nvtx;
mod ompt;
mod spans;

use names::Text;

/// Makes the segment, and the text and the domain that further names share once a table is full.
fn get_ready() {
    pfp::c::get_ready();
    names::prepare();
}

/// Names a thread of the program.
fn name_thread(thread: u32, name: &'static Text) {
    // SAFETY: `gettid` has no preconditions.
    match unsafe { libc::gettid() } as u32 == thread {
        true => pfp::c::keeping_errno(|| pfp::register_thread(name.name())),
        false => pfp::c::name_thread(thread, name.name()),
    }
}

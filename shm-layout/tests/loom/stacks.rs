//! Stores the stacks of models' threads for reuse in the next run of a scene.
//!
//! The checker maps a stack for each thread of each run and unmaps it after the run, which takes
//! the kernel longer than the run itself. These functions replace the C library's in this program,
//! and return a stack that this thread has unmapped before.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

#[derive(Clone, Copy)]
struct Stack {
    bottom: *mut c_void,
    bytes: usize,
    is_free: bool,
}

/// Maximum number of stacks: more than the threads of a model.
const MAX_STACKS: usize = 8;

thread_local! {
    // The thread-local has no destructor, since threads unmap stacks until they end.
    static STACKS: Cell<[Stack; MAX_STACKS]> =
        const { Cell::new([Stack { bottom: null_mut(), bytes: 0, is_free: false }; MAX_STACKS]) };
}

/// Changes the first stack that fits; returns whether there is one.
fn change(fits: impl Fn(&Stack) -> bool, change: impl FnOnce(&mut Stack)) -> bool {
    let mut stacks = STACKS.get();
    let stack = stacks.iter_mut().find(|stack| fits(stack));
    let found = stack.map(change).is_some();
    STACKS.set(stacks);
    found
}

/// Maps memory like the C library's mmap, but reuses a stack that was unmapped.
///
/// # Safety
///
/// The C library's requirements apply. A stack that this function reuses has no other user: its
/// last user has unmapped it.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    place: *mut c_void,
    bytes: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    let is_stack = flags & libc::MAP_STACK != 0;
    let mut mapped = null_mut();
    let is_kept = |stack: &Stack| is_stack && stack.is_free && stack.bytes == bytes;
    if change(is_kept, |stack| {
        stack.is_free = false;
        mapped = stack.bottom;
    }) {
        return mapped;
    }
    // SAFETY: the arguments are unchanged, and the caller fulfils mmap's requirements.
    let mapped =
        unsafe { libc::syscall(libc::SYS_mmap, place, bytes, access, flags, file, offset) };
    let mapped = mapped as *mut c_void;
    if is_stack && mapped != libc::MAP_FAILED {
        let new = Stack { bottom: mapped, bytes, is_free: false };
        change(|stack| stack.bottom.is_null(), |stack| *stack = new);
    }
    mapped
}

/// Unmaps memory like the C library's munmap, but keeps a stack for the next caller.
///
/// # Safety
///
/// The C library's requirements apply.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(place: *mut c_void, bytes: usize) -> c_int {
    let is_stack = |stack: &Stack| stack.bottom == place && stack.bytes == bytes && !stack.is_free;
    if !place.is_null() && change(is_stack, |stack| stack.is_free = true) {
        return 0;
    }
    // SAFETY: the arguments are unchanged, and the caller fulfils munmap's requirements.
    unsafe { libc::syscall(libc::SYS_munmap, place, bytes) as c_int }
}

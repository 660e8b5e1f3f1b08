//! Table from the address of a function to its point.
//!
//! The address bits that distinguish functions select an entry. If another function has that entry,
//! the following entries are searched:
//!
//! ```text
//! address 0x55d0_0040_1a30 --> entry 0x401a3 | function | point |
//!                                            | next ... |       |
//! ```
//!
//! Neighbours in the program are neighbours in the table, so functions that run together share
//! cache lines, and functions that are never called need no memory. Functions of different objects
//! can select the same entry, and so can functions that are aligned to less than 16 bytes.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use probe::Point;

use super::objects;
use crate::arena;

/// Log2 of the alignment that compilers give functions, except when they optimize for size.
const ALIGN: u32 = 4;
/// Number of entries in the table, whose pages are allocated on first use. Aligned functions within
/// 16 MiB of code never select the same entry.
const ENTRIES: usize = 1 << 20;
/// Maximum number of entries to search. No search is this long before a program has called several
/// hundred thousand functions.
const MAX_PROBES: usize = 1 << 10;

#[repr(C)]
pub(super) struct Entry {
    function: AtomicUsize,
    /// The function's point, set once, after `function`.
    point: AtomicPtr<Point>,
}

/// The table; null before the first hook.
pub(super) static TABLE: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// Address bits that give the offset of the entry in the table.
#[cfg(target_arch = "x86_64")]
pub(super) const WITHIN: usize = (ENTRIES - 1) * size_of::<Entry>();
/// Offset of the point in an entry.
#[cfg(target_arch = "x86_64")]
pub(super) const POINT: usize = std::mem::offset_of!(Entry, point);
#[cfg(target_arch = "x86_64")]
const _: () = assert!(size_of::<Entry>() == 1 << ALIGN);

#[inline(always)]
fn place(function: usize) -> usize {
    function >> ALIGN
}

/// # Safety
///
/// `table` was returned by the function [`table`].
#[inline(always)]
unsafe fn entry(table: *const Entry, place: usize) -> &'static Entry {
    // SAFETY: the index is less than the length of the table, which stays mapped, and a zeroed
    // entry is valid.
    unsafe { &*table.add(place % ENTRIES) }
}

/// The point of a function that has been called before, if it is in the first entry searched.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn first(function: usize) -> Option<&'static Point> {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return None;
    }
    // SAFETY: not null, so it is the table.
    let entry = unsafe { entry(table, place(function)) };
    if entry.function.load(Relaxed) != function {
        return None;
    }
    // SAFETY: null, or a point that is never freed. Acquire pairs with the release in `look_up`.
    unsafe { entry.point.load(Acquire).as_ref() }
}

/// The point of a function that has been called before.
pub(super) fn known(function: usize) -> Option<&'static Point> {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return None;
    }
    for step in 0..MAX_PROBES {
        // SAFETY: not null, so it is the table.
        let entry = unsafe { entry(table, place(function) + step) };
        match entry.function.load(Relaxed) {
            // SAFETY: null, or a point that is never freed. Acquire pairs with the release in
            // `look_up`.
            found if found == function => return unsafe { entry.point.load(Acquire).as_ref() },
            0 => return None,
            _ => {}
        }
    }
    None
}

/// The point of a function, created if needed. `None` if memory runs out.
pub(super) fn look_up(function: usize) -> Option<&'static Point> {
    let table = table()?;
    if function == 0 {
        return None;
    }
    for step in 0..MAX_PROBES {
        // SAFETY: the function `table` has returned this table.
        let entry = unsafe { entry(table, place(function) + step) };
        let mut found = entry.function.load(Relaxed);
        if found == 0 {
            found = entry
                .function
                .compare_exchange(0, function, Relaxed, Relaxed)
                .map_or_else(|other| other, |_| function);
        }
        if found != function {
            continue;
        }
        let known = entry.point.load(Acquire);
        // SAFETY: null, or a point that is never freed.
        if let Some(known) = unsafe { known.as_ref() } {
            return Some(known);
        }
        // Several threads may create the point at the same time, and a thread among them may be
        // interrupted, or be missing after a fork. So no thread waits for another, and the first to
        // finish wins.
        let new = ptr::from_ref(objects::point(function)?).cast_mut();
        // Release publishes the point; it pairs with the acquire in `first` and `known`.
        let made = entry.point.compare_exchange(ptr::null_mut(), new, Release, Acquire);
        let point = made.map_or_else(|other| other, |_| new);
        // SAFETY: a point that is never freed.
        return unsafe { point.as_ref() };
    }
    None
}

/// Adds a function that is not in the table, with its point. Returns false if another thread sets
/// its point at the same time, if no entry is free, or if memory runs out.
pub(super) fn add(function: usize, point: &'static Point) -> bool {
    let Some(table) = table() else { return false };
    for step in 0..MAX_PROBES {
        // SAFETY: the function `table` has returned this table.
        let entry = unsafe { entry(table, place(function) + step) };
        if entry.function.compare_exchange(0, function, Relaxed, Relaxed).is_ok() {
            let point = ptr::from_ref(point).cast_mut();
            // Release publishes the point, as in `look_up`.
            let made = entry.point.compare_exchange(ptr::null_mut(), point, Release, Relaxed);
            return made.is_ok();
        }
    }
    false
}

/// The table, which the first call maps. `None` if memory runs out.
fn table() -> Option<*const Entry> {
    let table = TABLE.load(Acquire);
    if !table.is_null() {
        return Some(table);
    }
    let bytes = ENTRIES * size_of::<Entry>();
    let new = arena::map(bytes)?;
    // Release publishes the mapping; it pairs with the acquire loads of `TABLE`.
    match TABLE.compare_exchange(ptr::null_mut(), new.cast(), Release, Acquire) {
        Ok(_) => Some(new.cast()),
        Err(other) => {
            // SAFETY: a whole mapping, whose address was not published.
            unsafe { arena::unmap(new, bytes) };
            Some(other)
        }
    }
}

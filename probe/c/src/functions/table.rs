//! From the address of a function to its point.
//!
//! Of each address, the part that tells functions apart says where in the table
//! its entry is; another one may be there, and then it is one of the next:
//!
//! ```text
//! address 0x55d0_0040_1a30 --> entry 0x401a3 | function | point |
//!                                            | next ... |       |
//! ```
//!
//! Neighbours in the program are neighbours in the table, so that what runs
//! together lies together, and what is not called takes no memory. It does not
//! matter to which object an address belongs, nor whether two of them share an
//! entry, nor whether it is one of a function at all.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use probe::Point;

use super::objects;
use crate::arena;

/// Where compilers begin a function, unless asked to save space.
const ALIGN: u32 = 4;
/// Mapped, and taken as needed: 16 MiB of code in a row do not meet.
const ENTRIES: usize = 1 << 20;
/// Entries that are looked at. Not reached before a program has called some
/// hundred thousand functions.
const WAY: usize = 1 << 10;

#[repr(C)]
pub(super) struct Entry {
    function: AtomicUsize,
    /// Set after the function, and only once.
    point: AtomicPtr<Point>,
}

/// Null before the first hook.
pub(super) static TABLE: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// The bits of an address that say how far into the table its entry is.
#[cfg(target_arch = "x86_64")]
pub(super) const WITHIN: usize = (ENTRIES - 1) * size_of::<Entry>();
/// Where an entry has its point.
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
/// `table` is not null.
#[inline(always)]
unsafe fn entry(table: *const Entry, place: usize) -> &'static Entry {
    // SAFETY: within the table, which stays mapped; zeros are a valid entry.
    unsafe { &*table.add(place % ENTRIES) }
}

/// The point of a function that has been called before, if it is where it is
/// looked for first.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn first(function: usize) -> Option<&'static Point> {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return None;
    }
    // SAFETY: not null.
    let entry = unsafe { entry(table, place(function)) };
    if entry.function.load(Relaxed) != function {
        return None;
    }
    // SAFETY: as in `known`.
    unsafe { entry.point.load(Acquire).as_ref() }
}

/// The same, wherever it is.
pub(super) fn known(function: usize) -> Option<&'static Point> {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return None;
    }
    for step in 0..WAY {
        // SAFETY: not null.
        let entry = unsafe { entry(table, place(function) + step) };
        match entry.function.load(Relaxed) {
            // SAFETY: null, or a point in memory that is never given back. Meets
            // `Release` in `look_up`.
            found if found == function => return unsafe { entry.point.load(Acquire).as_ref() },
            0 => return None,
            _ => {}
        }
    }
    None
}

/// The same, with the point made if need be; none without memory.
pub(super) fn look_up(function: usize) -> Option<&'static Point> {
    let table = table()?;
    if function == 0 {
        return None;
    }
    for step in 0..WAY {
        // SAFETY: not null.
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
        // SAFETY: as in `known`.
        if let Some(known) = unsafe { known.as_ref() } {
            return Some(known);
        }
        // Several may make it at the same time, and one of them be interrupted or
        // forked away: the first that is done has made it.
        let new = ptr::from_ref(objects::point(function)?).cast_mut();
        // Meets `Acquire` in `first` and `known`: the point is filled.
        let made = entry.point.compare_exchange(ptr::null_mut(), new, Release, Acquire);
        let point = made.map_or_else(|other| other, |_| new);
        // SAFETY: as in `known`, and not null.
        return unsafe { point.as_ref() };
    }
    None
}

/// Makes a point that of a function; false if that has one, or without memory.
pub(super) fn add(function: usize, point: &'static Point) -> bool {
    let Some(table) = table() else { return false };
    for step in 0..WAY {
        // SAFETY: not null.
        let entry = unsafe { entry(table, place(function) + step) };
        if entry.function.compare_exchange(0, function, Relaxed, Relaxed).is_ok() {
            let point = ptr::from_ref(point).cast_mut();
            // As in `look_up`.
            let made = entry.point.compare_exchange(ptr::null_mut(), point, Release, Relaxed);
            return made.is_ok();
        }
    }
    false
}

/// The table, mapped if need be.
fn table() -> Option<*const Entry> {
    let table = TABLE.load(Acquire);
    if !table.is_null() {
        return Some(table);
    }
    let bytes = ENTRIES * size_of::<Entry>();
    let new = arena::map(bytes)?;
    // Meets `Acquire` above and in those two, which need the mapping.
    match TABLE.compare_exchange(ptr::null_mut(), new.cast(), Release, Acquire) {
        Ok(_) => Some(new.cast()),
        Err(other) => {
            // SAFETY: nobody has seen it.
            unsafe { arena::unmap(new, bytes) };
            Some(other)
        }
    }
}

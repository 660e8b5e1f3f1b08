//! The name that the program chose for itself.

use std::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp_shm_layout::beacon::MAX_NAME;

use super::current;
use crate::engine::copies::by_leader;

/// The name that the program gave itself. Two threads that name it at once may mix their names,
/// because no thread waits for another.
static NAME: [AtomicU8; MAX_NAME] = [const { AtomicU8::new(0) }; MAX_NAME];
static NAME_LEN: AtomicUsize = AtomicUsize::new(0);

/// Names the program: now, or when its segment is made.
pub(crate) fn set_name(name: &str) {
    by_leader!(set_program_name(name));
    let mut end = name.len().min(MAX_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    NAME.iter().zip(name[..end].bytes()).for_each(|(to, byte)| to.store(byte, Relaxed));
    // Pairs with the load in `program_name`.
    NAME_LEN.store(end, Release);
    if let Some(process) = current() {
        process.segment.counters().set_name(name);
    }
}

/// The name that the program chose; empty without one.
pub(super) fn program_name(to: &mut [u8; MAX_NAME]) -> &str {
    // Pairs with the store in `set_name`.
    let len = NAME_LEN.load(Acquire);
    to.iter_mut().zip(&NAME).for_each(|(to, byte)| *to = byte.load(Relaxed));
    str::from_utf8(&to[..len]).unwrap_or_default()
}

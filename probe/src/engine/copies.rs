//! How several copies of pfp in one process work together.
//!
//! A Rust program and the plugins it loads, or a C library, may each bring a copy, built by
//! different compilers from different versions. One copy *leads*: it makes the process, and has the
//! threads, their lanes and the contexts. The others *follow*: they call the leader for each
//! region, through a [`FunctionTable`] of C functions. So a thread has one lane and one stack of
//! open regions, whichever copies its regions belong to.
//!
//! ```text
//!              leader                              follower
//!  points      its own, and one for each  <------  other: the leader's point
//!              point of a follower        ------>  control: the word in the segment
//!  functions   table, serve               <------  table, follower
//!  threads, contexts, clock, figures               none
//! ```
//!
//! Copies share no Rust type. Functions of the table take words, texts, and pointers to words, to a
//! [`Declaration`], a [`Sink`], [`super::elsewhere::Past`] and [`super::polls::Polls`], which have
//! C's layout. Only the copy that made a point or a context knows its layout.
//!
//! [`super::leader`] describes how the copies find each other.

mod follower;
mod serve;
mod table;

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Release},
};

use pfp_shm_layout::amounts::MAX_AMOUNTS;

pub(crate) use self::table::FunctionTable;
pub(super) use self::table::{TABLE, VERSION};
use super::image;
use crate::clock;

/// A follower's point, as the follower declares it to the leader. Everything that this points to
/// lives as long as the process.
#[repr(C)]
struct Declaration {
    /// The follower's pointer to the control word of the point. The leader writes the pointer. The
    /// lowest bit of the word shows whether the point is on.
    control: *const AtomicPtr<AtomicU64>,
    name: RawText,
    file: RawText,
    line: u32,
    /// The number of a numeric point; [`Self::NAMED`] for other points.
    number: u32,
    starts_on: bool,
    fenced: bool,
    counts_allocs: bool,
    device: bool,
    wall: bool,
    /// Names of the amounts, in order; unused elements are empty.
    amounts: [RawText; MAX_AMOUNTS],
}

impl Declaration {
    const NAMED: u32 = u32::MAX;
}

/// A text in UTF-8.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RawText {
    bytes: *const u8,
    len: usize,
}

impl RawText {
    fn of(text: &(impl AsRef<[u8]> + ?Sized)) -> Self {
        let bytes = text.as_ref();
        Self { bytes: bytes.as_ptr(), len: bytes.len() }
    }

    /// # Safety
    ///
    /// The bytes are valid and unchanged for the lifetime that the caller chooses.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the pointer and the length come from a slice, which is valid for `'a` by the
        // caller's promise.
        unsafe { std::slice::from_raw_parts(self.bytes, self.len) }
    }
}

/// A destination for bytes that the leader writes. `write` returns false if memory runs out.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Sink {
    to: *mut c_void,
    write: unsafe extern "C" fn(*mut c_void, *const u8, usize) -> bool,
}

impl Sink {
    /// A sink that appends to a vector, which must outlive the sink.
    fn to(bytes: &mut Vec<u8>) -> Self {
        unsafe extern "C" fn append(to: *mut c_void, bytes: *const u8, len: usize) -> bool {
            // SAFETY: `to` is the vector that `Sink::to` stores below, and the writer passes the
            // bytes of a slice.
            let (to, bytes) =
                unsafe { (&mut *to.cast::<Vec<u8>>(), std::slice::from_raw_parts(bytes, len)) };
            if to.try_reserve(bytes.len()).is_err() {
                return false;
            }
            to.extend_from_slice(bytes);
            true
        }
        Self { to: ptr::from_mut(bytes).cast(), write: append }
    }

    fn write(&self, bytes: &[u8]) -> bool {
        // SAFETY: the function gets the pointer that was stored with it, and the bytes of a slice.
        unsafe { (self.write)(self.to, bytes.as_ptr(), bytes.len()) }
    }
}

/// If this copy follows, calls the leader's function and returns its result.
macro_rules! by_leader {
    ($($call:tt)+) => {
        if let Some(leader) = $crate::engine::copies::followed() {
            return leader.$($call)+;
        }
    };
}
pub(super) use by_leader;

/// The leader's table. Null if this copy leads; [`UNKNOWN`] before the leader is known.
static LEADER: AtomicPtr<FunctionTable> = AtomicPtr::new(UNKNOWN);

const UNKNOWN: *mut FunctionTable = ptr::without_provenance_mut(align_of::<FunctionTable>());

/// Makes this copy follow `leader`; with `None`, this copy leads.
pub(super) fn set_leader(leader: Option<&'static FunctionTable>) {
    if let Some(leader) = leader {
        clock::follow(leader.stamp);
    }
    // Pairs with the load in `leader`.
    LEADER.store(leader.map_or(ptr::null(), ptr::from_ref).cast_mut(), Release);
}

fn leader() -> *mut FunctionTable {
    // Pairs with the store in `set_leader`.
    LEADER.load(Acquire)
}

/// The copy that this one follows. `None` if this one leads, or while another thread looks for the
/// others.
#[inline]
pub(crate) fn followed() -> Option<&'static FunctionTable> {
    let mut leader = leader();
    if leader == UNKNOWN {
        leader = look_for_leader();
    }
    // SAFETY: the pointer is null, or leads to a static of an object that is not unloaded.
    unsafe { leader.as_ref() }
}

#[cold]
fn look_for_leader() -> *mut FunctionTable {
    image::prepare();
    let leader = leader();
    if leader == UNKNOWN { ptr::null_mut() } else { leader }
}

/// Whether this copy leads.
pub(super) fn leads() -> bool {
    followed().is_none() && leader() != UNKNOWN
}

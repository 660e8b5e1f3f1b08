//! Several copies of pfp in one process: all of them use one segment.
//!
//! A Rust program and the plugins it loads, or a C library, may each bring a copy. Each
//! keeps its code, its points, and what measuring costs in it. One copy *leads*: it makes
//! the process and claims the lanes. The others *follow*: they use its process, and each
//! thread's state as it is, so that a thread has one lane and one stack of open regions,
//! whichever copy a region is of. A follower's regions take the same short way as the
//! leader's, since that only touches the thread's state.
//!
//! ```text
//!            leader                          follower
//!  Copy      process, thread  <-- asks --    (one pointer to the leader)
//!            list of followers -- tells -->  follow, pause, calibrate
//!  private   points, overhead                points, overhead
//!  shared    Process, Thread, contexts, Common
//! ```
//!
//! The copies find each other by a note in the headers of the object that each is linked
//! into: statics of Rust programs and hidden symbols are in no table that `dlsym` reads,
//! but notes are loaded however a program is linked, and end with an `exec`. A note has
//! the number [`ABI`] and says where the [`Copy`] is. Copies with different numbers are
//! not compatible: each of them makes a segment of its own.
//!
//! Who leads is decided as each copy is loaded, while the loader's list is locked, so that
//! nothing in it can be unloaded: a copy that leads already, else the one that asks first.
//! Later that lock may be another thread's, which a forked child does not have. A copy asks
//! once its object cannot be unloaded any more.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use pfp_shm_layout::header;
use pfp_shm_layout::segment::Segment;

use super::context;
use super::point::State;
use super::process::{self, Process};
use super::settings::Settings;
use super::thread::{self, Thread};
use crate::clock::{self, ThreadClock};
use crate::errno;

/// To be raised whenever what copies share changes in meaning and not in size.
const PROTOCOL: usize = 3;

/// Most copies that can follow one.
pub(super) const FOLLOWERS: usize = 7;

/// Tells copies that share one another's data from all others: the same version, and
/// every size and place in which compilers could differ.
const ABI: u64 = {
    let mut hash = fold(0xcbf2_9ce4_8422_2325, &[PROTOCOL]);
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let mut at = 0;
    while at < version.len() {
        hash = fold(hash, &[version[at] as usize]);
        at += 1;
    }
    hash = fold(hash, &[header::MAJOR as usize, header::MINOR as usize]);
    hash = fold(hash, &[size_of::<Copy>(), size_of::<context::Shared>()]);
    hash = fold(hash, &Thread::LAYOUT);
    hash = fold(hash, &State::LAYOUT);
    hash = fold(hash, &Settings::LAYOUT);
    hash = fold(hash, &[size_of::<ThreadClock>(), size_of::<clock::State>()]);
    hash = fold(hash, &[offset_of!(Copy, common), size_of::<Common>()]);
    hash = fold(hash, &Segment::LAYOUT);
    fold(hash, &Process::LAYOUT)
};

/// One step of FNV-1a for each word.
const fn fold(mut hash: u64, words: &[usize]) -> u64 {
    let mut at = 0;
    while at < words.len() {
        hash = (hash ^ words[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

/// What all copies have in common: the leader's.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) clock: clock::State,
    pub(super) contexts: context::Counts,
    /// Whether [`process::pause`] has switched everything off.
    pub(super) paused: AtomicBool,
}

/// One copy, as the others see it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Copy {
    /// Whether it leads.
    leads: AtomicBool,
    /// The leader; null before it is known.
    leader: AtomicPtr<Copy>,
    /// In the first copy in the loader's list: who was made the leader.
    elected: AtomicPtr<Copy>,
    /// In the leader the first of its followers, in each of them the next.
    next: AtomicPtr<Copy>,
    /// In the leader, how many have wanted to follow; in a follower its number, from 1.
    number: AtomicU32,
    common: Common,
    /// Of the leader: makes the process if need be, and returns its gate, or null.
    process: extern "C" fn() -> *mut AtomicPtr<Process>,
    /// Of the leader: why it can never make it; 0 while it may.
    failure: extern "C" fn() -> u64,
    /// Of the leader: the calling thread's state, or null. It clears the slot of the
    /// follower of that number when the thread ends.
    thread: unsafe extern "C" fn(u32, *mut *const Thread) -> *const Thread,
    /// Makes the leader's process its own, and enters its points there.
    follow: extern "C" fn(*mut AtomicPtr<Process>) -> bool,
    /// Pauses its points or resumes them.
    pause: extern "C" fn(bool),
    /// Names the program, by so many bytes of UTF-8.
    name: unsafe extern "C" fn(*const u8, usize),
    /// Measures what measuring costs in it.
    calibrate: extern "C" fn(),
}

/// This copy.
static COPY: Copy = Copy {
    leads: AtomicBool::new(false),
    leader: AtomicPtr::new(ptr::null_mut()),
    elected: AtomicPtr::new(ptr::null_mut()),
    next: AtomicPtr::new(ptr::null_mut()),
    number: AtomicU32::new(0),
    common: Common {
        clock: clock::State::new(),
        contexts: context::Counts::new(),
        paused: AtomicBool::new(false),
    },
    process: process::gate_for_followers,
    failure: process::failure_here,
    thread: thread::of_follower,
    follow: process::follow,
    pause: process::pause_here,
    name: process::set_name_here,
    calibrate: process::calibrate_here,
};

// The note: the sizes of name and content, the type, the name, and the content, which is
// the number and how far it is from there to the copy. A distance needs no relocation.
#[cfg(not(miri))]
std::arch::global_asm!(
    ".pushsection .note.pfp.copy, \"a\", %note",
    ".balign 8",
    ".long 4, 16, {kind}",
    ".asciz \"pfp\"",
    ".quad {abi}",
    ".quad {copy} - .",
    ".popsection",
    kind = const KIND,
    abi = const ABI,
    copy = sym COPY,
);

const KIND: u32 = 1;

/// What the header of a note has, before its name.
#[repr(C)]
struct NoteHeader {
    name: u32,
    content: u32,
    kind: u32,
}

/// What a note of ours has.
#[repr(C)]
struct Note {
    header: NoteHeader,
    name: [u8; 4],
    abi: u64,
    distance: i64,
}

/// What the loader's list was searched for.
struct Search {
    /// The first copy in it, and who was elected there before.
    first: *const Copy,
    elected: *mut Copy,
    /// Who leads.
    leader: *const Copy,
    /// Whether to elect this copy, if nobody was elected since.
    elects: bool,
}

/// What all copies have in common: the leader's, and this copy's own before it knows of one.
static COMMON: AtomicPtr<Common> = AtomicPtr::new((&raw const COPY.common).cast_mut());

#[inline(always)]
pub(crate) fn common() -> &'static Common {
    // SAFETY: in this copy, or in one whose object is not unloaded any more.
    unsafe { &*COMMON.load(Acquire) }
}

fn known_leader() -> Option<&'static Copy> {
    // SAFETY: null, or a copy whose object is not unloaded any more.
    unsafe { COPY.leader.load(Acquire).as_ref() }
}

/// The copy that this one follows; none if it leads, or does neither yet.
fn followed() -> Option<&'static Copy> {
    known_leader().filter(|leader| !ptr::eq(*leader, &raw const COPY))
}

/// Whether this copy follows another one.
pub(super) fn follows() -> bool {
    followed().is_some()
}

/// The process of the copy that leads; outer none if that is this one, which has to make
/// it.
pub(super) fn join() -> Option<Option<&'static Process>> {
    if ptr::eq(known_leader().map_or(ptr::null(), ptr::from_ref), &raw const COPY) {
        return None;
    }
    // Unknown as long as another thread loads this copy.
    let Some(leader) = followed() else { return Some(None) };
    let gate = (leader.process)();
    if gate.is_null() {
        return Some(None);
    }
    if process::follow(gate) {
        process::calibrate_here();
    }
    Some(process::current())
}

/// Why the leader will never make a process; 0 while it may: another thread is just making
/// it.
pub(super) fn failure() -> u64 {
    followed().map_or(0, |leader| (leader.failure)())
}

/// The calling thread's state, which the leader has; none if this copy leads.
pub(super) fn thread(slot: *mut *const Thread) -> Option<Option<&'static Thread>> {
    let leader = followed()?;
    // SAFETY: the slot is thread-local, so it is there until the thread ends, and the
    // result is null or the pages of a lane, as `thread::current` has it.
    Some(unsafe { (leader.thread)(COPY.number.load(Relaxed), slot).as_ref() })
}

/// Tells all followers of a new process.
pub(super) fn lead(gate: *mut AtomicPtr<Process>) {
    for copy in everyone().filter(|copy| !ptr::eq(*copy, &raw const COPY)) {
        (copy.follow)(gate);
    }
}

/// Pauses the points of all copies, or resumes them.
pub(super) fn pause(pause: bool) {
    everyone().for_each(|copy| (copy.pause)(pause));
}

/// Measures in all copies what measuring costs.
pub(super) fn calibrate() {
    everyone().for_each(|copy| (copy.calibrate)());
}

/// Has the leader name the program; false if that is this copy.
pub(super) fn name(name: &str) -> bool {
    // SAFETY: so many bytes of UTF-8, which are there during the call.
    followed().map(|leader| unsafe { (leader.name)(name.as_ptr(), name.len()) }).is_some()
}

/// The leader and those that follow it; this copy alone before it knows of others.
fn everyone() -> impl Iterator<Item = &'static Copy> {
    // SAFETY: null, or a copy whose object is not unloaded any more.
    let next = |copy: &&'static Copy| unsafe { copy.next.load(Acquire).as_ref() };
    std::iter::successors(Some(known_leader().unwrap_or(&COPY)), next)
}

/// Finds out which copy leads; this one, if no other one does. Once, as the object that
/// this copy is in is loaded.
pub(super) fn settle() {
    let found = search(false, ptr::null_mut());
    let leader = match found.leader.is_null() {
        true => search(true, found.elected).leader,
        false => found.leader,
    };
    // SAFETY: null, or a copy that leads.
    let leader = unsafe { leader.as_ref() };
    let followed = leader.filter(|leader| !ptr::eq(*leader, &raw const COPY));
    let leader = followed.filter(|leader| start_to_follow(leader)).unwrap_or(&COPY);
    COPY.leader.store(ptr::from_ref(leader).cast_mut(), Release);
    // Meets the load in `common`.
    COMMON.store(ptr::from_ref(&leader.common).cast_mut(), Release);
    if follows() {
        // What was asked of this copy alone, before it knew of the leader.
        if COPY.common.paused.load(Relaxed) {
            process::pause(true);
        }
        process::pass_name_on();
    }
}

/// Enters this copy into the leader's list; false if that is full.
fn start_to_follow(leader: &'static Copy) -> bool {
    let number = leader.number.fetch_add(1, Relaxed) + 1;
    if number as usize > FOLLOWERS {
        return false;
    }
    COPY.number.store(number, Relaxed);
    let mut next = leader.next.load(Acquire);
    loop {
        COPY.next.store(next, Relaxed);
        // Meets the load in `everyone`.
        match leader.next.compare_exchange(next, own(), AcqRel, Acquire) {
            Ok(_) => return true,
            Err(found) => next = found,
        }
    }
}

fn own() -> *mut Copy {
    (&raw const COPY).cast_mut()
}

fn search(elects: bool, elected: *mut Copy) -> Search {
    let mut search = Search { first: ptr::null(), elected, leader: ptr::null(), elects };
    // The interpreter has no loader.
    if !cfg!(miri) {
        // SAFETY: the function gets a pointer to what it expects.
        errno::kept(|| unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut search).cast()) });
    }
    search
}

/// Looks for copies in one object of the loader's list; not 0 once the search is over.
unsafe extern "C" fn look_at(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    search: *mut c_void,
) -> c_int {
    // SAFETY: as `dl_iterate_phdr` and `search` promise.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    for (start, bytes) in notes(info) {
        // SAFETY: the loader says that they are there.
        unsafe { each_copy(start, bytes, |copy| search.meet(copy)) };
    }
    c_int::from(!search.leader.is_null())
}

/// Where an object has notes, and how many bytes, as far as they are loaded.
fn notes(info: &libc::dl_phdr_info) -> impl Iterator<Item = (usize, usize)> {
    // SAFETY: there are that many.
    let part = |number| unsafe { &*info.dlpi_phdr.add(number) };
    let parts = move || (0..usize::from(info.dlpi_phnum)).map(part);
    let is_loaded = move |note: &&libc::Elf64_Phdr| {
        parts().any(|load| {
            let within = note.p_vaddr.wrapping_sub(load.p_vaddr);
            load.p_type == libc::PT_LOAD
                && load.p_flags & libc::PF_R != 0
                && within <= load.p_memsz
                && note.p_memsz <= load.p_memsz - within
        })
    };
    let is_note = |part: &&libc::Elf64_Phdr| part.p_type == libc::PT_NOTE;
    parts().filter(is_note).filter(is_loaded).map(|note| {
        ((info.dlpi_addr as usize).wrapping_add(note.p_vaddr as usize), note.p_memsz as usize)
    })
}

impl Search {
    fn meet(&mut self, copy: &'static Copy) {
        if !self.leader.is_null() {
            return;
        }
        if self.first.is_null() {
            self.first = copy;
            if self.elects {
                self.leader = elect(copy, self.elected);
            } else {
                self.elected = copy.elected.load(Acquire);
            }
        }
        if !self.elects && copy.leads.load(Acquire) {
            self.leader = copy;
        }
    }
}

/// Makes this copy the leader, unless another one was made that since `before` was; who
/// is.
fn elect(first: &Copy, before: *mut Copy) -> *const Copy {
    match first.elected.compare_exchange(before, own(), AcqRel, Acquire) {
        Ok(_) => {
            COPY.leads.store(true, Release);
            own()
        }
        Err(other) => other,
    }
}

/// Calls something for each copy that notes tell of.
///
/// # Safety
///
/// There are so many bytes of notes, in an object that is loaded.
unsafe fn each_copy(start: usize, bytes: usize, mut found: impl FnMut(&'static Copy)) {
    let mut at = 0;
    while bytes - at >= size_of::<NoteHeader>() {
        let place = ptr::with_exposed_provenance::<u8>(start + at);
        // SAFETY: there are so many bytes more.
        let header = unsafe { place.cast::<NoteHeader>().read_unaligned() };
        let [name, content] =
            [header.name, header.content].map(|it| (it as usize).next_multiple_of(4));
        let size = size_of::<NoteHeader>() + name + content;
        if size > bytes - at {
            return;
        }
        if size == size_of::<Note>() && header.kind == KIND {
            // SAFETY: as just tested.
            let note = unsafe { place.cast::<Note>().read_unaligned() };
            if &note.name == b"pfp\0" && note.abi == ABI {
                let from = start + at + offset_of!(Note, distance);
                let copy = ptr::with_exposed_provenance::<Copy>(
                    from.wrapping_add_signed(note.distance as isize),
                );
                // SAFETY: a note of this name and number leads to a copy, which is a
                // static of the same object.
                found(unsafe { &*copy });
            }
        }
        at += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(miri))]
    #[test]
    fn the_note_of_this_copy_is_found() {
        unsafe extern "C" fn look(
            info: *mut libc::dl_phdr_info,
            _: libc::size_t,
            found: *mut c_void,
        ) -> c_int {
            // SAFETY: as `dl_iterate_phdr` and the caller promise.
            let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<*const Copy>>()) };
            for (start, bytes) in notes(info) {
                // SAFETY: the loader says that they are there.
                unsafe { each_copy(start, bytes, |copy| found.push(copy)) };
            }
            0
        }
        let mut found: Vec<*const Copy> = Vec::new();
        // SAFETY: the function gets a pointer to what it expects.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
        assert_eq!(found, [&raw const COPY]);
    }

    #[test]
    fn notes_that_end_early_are_no_copies() {
        let words = |name: u32, content: u32| {
            let mut bytes = Vec::new();
            for word in [name, content, KIND] {
                bytes.extend(word.to_ne_bytes());
            }
            bytes.extend(b"pfp\0");
            bytes.resize(64, 0);
            bytes
        };
        for bytes in [words(4, u32::MAX), words(u32::MAX - 8, 16), words(4, 16), words(0, 0)] {
            for len in 0..bytes.len() {
                let start = bytes.as_ptr().expose_provenance();
                // SAFETY: there are that many.
                unsafe { each_copy(start, len, |copy| panic!("{copy:?} in {bytes:?}")) };
            }
        }
    }
}

//! Decides which copy of pfp in a process leads, and how the others find it.
//!
//! The [`copies`] find each other by an ELF note in the object that contains each of them. `dlsym`
//! does not find statics of Rust programs or hidden symbols. Notes are loaded no matter how a
//! program is linked, and are gone after an `exec`. A note has the [`VERSION`] of the
//! [`FunctionTable`] and the location of the [`CopyInfo`]. Copies with other versions are not
//! compatible: each of them makes a segment of its own.
//!
//! Each copy chooses the leader when it is loaded: a copy that already leads, else the first copy
//! that searches. The search locks the loader's list, so that no object in it can be unloaded.
//! After loading, that lock may be held by another thread, and would never be released in a forked
//! child. Before its search, a copy makes sure that its own object cannot be unloaded.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::copies::{self, FunctionTable, TABLE, VERSION};
use crate::errno;

/// One copy, in the form that other copies read.
#[repr(C)]
#[derive(Debug)]
struct CopyInfo {
    /// Whether this copy leads.
    leads: AtomicBool,
    /// The elected leader. Only the first copy of the loader's list uses this field.
    elected: AtomicPtr<Self>,
    /// The functions of this copy. A newer copy's table may be larger than `FunctionTable` here.
    /// Atomic only because a raw pointer is not `Sync`.
    table: AtomicPtr<FunctionTable>,
}

impl CopyInfo {
    /// The functions of this copy. `None` if a function is missing, as in an older copy of the same
    /// version. A copy that finds such a leader does not follow it, and makes a segment of its own.
    fn table(&self) -> Option<&'static FunctionTable> {
        let table = self.table.load(Relaxed);
        // SAFETY: the table is a static of an object that is not unloaded, and begins with its own
        // size.
        let is_whole = unsafe { (&raw const (*table).size).read() } >= size_of::<FunctionTable>();
        // SAFETY: the table is a static of an object that is not unloaded, and as large as this
        // copy expects.
        is_whole.then(|| unsafe { &*table })
    }
}

/// What other copies read about this copy.
static COPY: CopyInfo = CopyInfo {
    leads: AtomicBool::new(false),
    elected: AtomicPtr::new(ptr::null_mut()),
    table: AtomicPtr::new((&raw const TABLE).cast_mut()),
};

// The note: the sizes of name and content, the type, the name, and the content, which is the
// version and the distance from there to the copy. A distance needs no relocation. This is
// assembly, since a `static` cannot hold a distance.
#[cfg(not(miri))]
std::arch::global_asm!(
    ".pushsection .note.pfp.copy, \"a\", %note",
    ".balign 8",
    ".long 4, 16, {kind}",
    ".asciz \"pfp\"",
    ".quad {version}",
    ".quad {copy} - .",
    ".popsection",
    kind = const KIND,
    version = const VERSION,
    copy = sym COPY,
);

const KIND: u32 = 1;

/// The header of a note, up to its name.
#[repr(C)]
struct NoteHeader {
    name: u32,
    content: u32,
    kind: u32,
}

/// The note of a copy of pfp, as it is loaded.
#[repr(C)]
struct Note {
    header: NoteHeader,
    name: [u8; 4],
    version: u64,
    distance: i64,
}

/// The state and result of a search in the loader's list.
struct Search {
    /// The first copy in the list, whose field `elected` leads to the elected leader; and the value
    /// of that field in the first search.
    first: *const CopyInfo,
    elected: *mut CopyInfo,
    /// The leader, if one is found.
    leader: *const CopyInfo,
    /// Whether this is the second search, which elects this copy, unless another copy was elected
    /// since the first search.
    elects: bool,
}

/// Finds the leading copy, or elects this copy. Called once, when this copy's object is loaded.
pub(super) fn choose() {
    let found = search(false, ptr::null_mut());
    let leader = match found.leader.is_null() {
        true => search(true, found.elected).leader,
        false => found.leader,
    };
    // SAFETY: the pointer is null, or leads to the `CopyInfo` of a copy that leads.
    let leader = unsafe { leader.as_ref() }.filter(|leader| !ptr::eq(*leader, &raw const COPY));
    copies::set_leader(leader.and_then(CopyInfo::table));
}

fn own() -> *mut CopyInfo {
    (&raw const COPY).cast_mut()
}

fn search(elects: bool, elected: *mut CopyInfo) -> Search {
    let mut search = Search { first: ptr::null(), elected, leader: ptr::null(), elects };
    // Miri has no loader.
    if !cfg!(miri) {
        // SAFETY: `look_at` gets a pointer to the `Search` that it expects, which outlives the
        // call.
        errno::preserve(|| unsafe {
            libc::dl_iterate_phdr(Some(look_at), (&raw mut search).cast())
        });
    }
    search
}

/// Searches one object of the loader's list for copies. Returns a value other than 0 when the
/// search is over.
unsafe extern "C" fn look_at(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    search: *mut c_void,
) -> c_int {
    // SAFETY: `dl_iterate_phdr` passes a valid `dl_phdr_info`, and `search` is the caller's
    // `Search`.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    for (start, bytes) in notes(info) {
        // SAFETY: `notes` returns only notes that are loaded, and the object stays loaded during
        // this callback.
        unsafe { each_copy(start, bytes, |copy| search.meet(copy)) };
    }
    c_int::from(!search.leader.is_null())
}

/// The address and length of an object's notes, as far as they are loaded.
fn notes(info: &libc::dl_phdr_info) -> impl Iterator<Item = (usize, usize)> {
    // SAFETY: the object has `dlpi_phnum` headers, and `number` is less than that.
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
    fn meet(&mut self, copy: &'static CopyInfo) {
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

/// Elects this copy, unless another copy was elected since the first search read `before`. Returns
/// the leader.
fn elect(first: &CopyInfo, before: *mut CopyInfo) -> *const CopyInfo {
    match first.elected.compare_exchange(before, own(), AcqRel, Acquire) {
        Ok(_) => {
            COPY.leads.store(true, Release);
            own()
        }
        Err(other) => other,
    }
}

/// Calls a function for each copy to which the notes lead.
///
/// # Safety
///
/// `start` is valid for reads of `bytes` bytes, and the object stays loaded.
unsafe fn each_copy(start: usize, bytes: usize, mut found: impl FnMut(&'static CopyInfo)) {
    let mut at = 0;
    while bytes - at >= size_of::<NoteHeader>() {
        let place = ptr::with_exposed_provenance::<u8>(start + at);
        // SAFETY: at least the size of a header is left of the bytes.
        let header = unsafe { place.cast::<NoteHeader>().read_unaligned() };
        let [name, content] =
            [header.name, header.content].map(|it| (it as usize).next_multiple_of(4));
        let size = size_of::<NoteHeader>() + name + content;
        if size > bytes - at {
            return;
        }
        if size == size_of::<Note>() && header.kind == KIND {
            // SAFETY: the test has found as many bytes as a note has.
            let note = unsafe { place.cast::<Note>().read_unaligned() };
            if &note.name == b"pfp\0" && note.version == VERSION {
                let from = start + at + offset_of!(Note, distance);
                let copy = ptr::with_exposed_provenance::<CopyInfo>(
                    from.wrapping_add_signed(note.distance as isize),
                );
                // SAFETY: a note of this name and version leads to a copy, which is a
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
            // SAFETY: `dl_iterate_phdr` passes a valid `dl_phdr_info`, and `found` is the caller's
            // vector.
            let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<*const CopyInfo>>()) };
            for (start, bytes) in notes(info) {
                // SAFETY: `notes` returns only notes that are loaded, and the object stays loaded
                // during this callback.
                unsafe { each_copy(start, bytes, |copy| found.push(copy)) };
            }
            0
        }
        let mut found: Vec<*const CopyInfo> = Vec::new();
        // SAFETY: `look` gets a pointer to the vector that it expects, which outlives the call.
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
                // SAFETY: `bytes` has at least `len` bytes.
                unsafe { each_copy(start, len, |copy| panic!("{copy:?} in {bytes:?}")) };
            }
        }
    }
}

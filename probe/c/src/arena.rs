//! Memory that is never given back, and that signal handlers may take too.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Bytes that are mapped at a time.
const CHUNK: usize = 1 << 18;
const ALIGN: usize = 16;

/// At the start of a chunk: bytes in use.
type Header = AtomicUsize;

/// The chunk that has room.
static CHUNK_NOW: AtomicPtr<Header> = AtomicPtr::new(ptr::null_mut());

/// Maps zeros of one's own, which a forked child inherits.
///
/// By the bare system call: ThreadSanitizer takes the C library's for a write of all the
/// pages, and would report every thread that is given some of them later.
pub(crate) fn map(bytes: usize) -> Option<*mut u8> {
    // SAFETY: a new mapping, at a place of the kernel's choice.
    let pages = probe::c::keeping_errno(|| unsafe {
        let pages = ptr::with_exposed_provenance_mut::<libc::c_void>(libc::syscall(
            libc::SYS_mmap,
            ptr::null_mut::<libc::c_void>(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0_usize,
        ) as usize);
        if pages != libc::MAP_FAILED {
            // Nothing for a core dump; refused, it is in one.
            libc::madvise(pages, bytes, libc::MADV_DONTDUMP);
        }
        pages
    });
    (pages != libc::MAP_FAILED).then_some(pages.cast())
}

/// Gives back what [`map`] mapped.
///
/// # Safety
///
/// Nobody refers to it.
pub(crate) unsafe fn unmap(pages: *mut u8, bytes: usize) {
    // SAFETY: as the caller says.
    unsafe { libc::munmap(pages.cast(), bytes) };
}

fn take(bytes: usize) -> Option<*mut u8> {
    let bytes = bytes.next_multiple_of(ALIGN);
    if bytes > CHUNK / 8 {
        return map(bytes);
    }
    loop {
        let chunk = CHUNK_NOW.load(Acquire);
        if !chunk.is_null() {
            // SAFETY: chunks stay mapped.
            let used = unsafe { &*chunk }.fetch_add(bytes, Relaxed);
            if used + bytes <= CHUNK {
                // SAFETY: within the chunk.
                return Some(unsafe { chunk.cast::<u8>().add(used) });
            }
        }
        let new = map(CHUNK)?.cast::<Header>();
        // SAFETY: zeros, which nobody else has seen.
        unsafe { &*new }.store(ALIGN, Relaxed);
        // Meets `Acquire` above: the header is filled.
        if CHUNK_NOW.compare_exchange(chunk, new, Release, Relaxed).is_err() {
            // SAFETY: nobody has seen it.
            unsafe { unmap(new.cast(), CHUNK) };
        }
    }
}

/// Keeps a value for good; none without memory.
pub(crate) fn keep<T>(value: T) -> Option<&'static T> {
    const { assert!(align_of::<T>() <= ALIGN) };
    let place = take(size_of::<T>())?.cast::<MaybeUninit<T>>();
    // SAFETY: of that size and alignment, and nobody else's.
    Some(unsafe { &mut *place }.write(value))
}

/// Room for so many bytes, which are 0, for good; none without memory.
pub(crate) fn keep_bytes(count: usize) -> Option<&'static [AtomicU8]> {
    let place = take(count)?;
    // SAFETY: zeros of that size, and nobody else's.
    Some(unsafe { std::slice::from_raw_parts(place.cast(), count) })
}

/// Keeps a text of parts; none without memory.
pub(crate) fn keep_text(parts: &[&str]) -> Option<&'static str> {
    let bytes = parts.iter().map(|part| part.len()).sum();
    let place = take(bytes)?;
    let mut at = 0;
    for part in parts {
        // SAFETY: there is room for all of them.
        unsafe { place.add(at).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
        at += part.len();
    }
    // SAFETY: filled just now, with text.
    Some(unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(place, bytes)) })
}

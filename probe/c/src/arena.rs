//! Memory that is never freed. Signal handlers may allocate from it, too.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Size of a mapped chunk in bytes.
const CHUNK: usize = 1 << 18;
const ALIGN: usize = 16;

/// Start of a chunk: the number of bytes in use.
type Header = AtomicUsize;

/// The chunk from which memory is allocated.
static CHUNK_NOW: AtomicPtr<Header> = AtomicPtr::new(ptr::null_mut());

/// Maps zeroed private pages, which a forked child inherits.
///
/// Uses the system call directly: ThreadSanitizer treats the C library's `mmap` as a write to all
/// the pages, and would report a race with each thread that uses the pages later.
pub(crate) fn map(bytes: usize) -> Option<*mut u8> {
    // SAFETY: the kernel chooses the address, so the mapping replaces no other.
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
            // Keeps the pages out of core dumps. An error is ignored.
            libc::madvise(pages, bytes, libc::MADV_DONTDUMP);
        }
        pages
    });
    (pages != libc::MAP_FAILED).then_some(pages.cast())
}

/// Unmaps pages that [`map`] mapped.
///
/// # Safety
///
/// [`map`] returned `pages` for the same `bytes`, and no reference to the pages is left.
pub(crate) unsafe fn unmap(pages: *mut u8, bytes: usize) {
    // SAFETY: the caller passes a whole mapping without references to it.
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
            // SAFETY: not null, and chunks stay mapped.
            let used = unsafe { &*chunk }.fetch_add(bytes, Relaxed);
            if used + bytes <= CHUNK {
                // SAFETY: `used` is less than the size of the chunk.
                return Some(unsafe { chunk.cast::<u8>().add(used) });
            }
        }
        let new = map(CHUNK)?.cast::<Header>();
        // SAFETY: a new mapping, which starts with a zero header and which no other thread knows.
        unsafe { &*new }.store(ALIGN, Relaxed);
        // Release pairs with the acquire above: it publishes the header.
        if CHUNK_NOW.compare_exchange(chunk, new, Release, Relaxed).is_err() {
            // SAFETY: a whole mapping, whose address was not published.
            unsafe { unmap(new.cast(), CHUNK) };
        }
    }
}

/// Stores a value for ever. `None` if memory runs out.
pub(crate) fn keep<T>(value: T) -> Option<&'static T> {
    const { assert!(align_of::<T>() <= ALIGN) };
    let place = take(size_of::<T>())?.cast::<MaybeUninit<T>>();
    // SAFETY: `take` returned at least this size, aligned, to this call alone.
    Some(unsafe { &mut *place }.write(value))
}

/// Allocates `count` zero bytes for ever. `None` if memory runs out.
pub(crate) fn keep_bytes(count: usize) -> Option<&'static [AtomicU8]> {
    let place = take(count)?;
    // SAFETY: `take` returned `count` zero bytes to this call alone; they are never freed.
    Some(unsafe { std::slice::from_raw_parts(place.cast(), count) })
}

/// Stores the concatenation of `parts` for ever. `None` if memory runs out.
pub(crate) fn keep_text(parts: &[&str]) -> Option<&'static str> {
    let bytes = parts.iter().map(|part| part.len()).sum();
    let place = take(bytes)?;
    let mut at = 0;
    for part in parts {
        // SAFETY: the parts before and including this one fit into `bytes`, the size of the
        // allocation.
        unsafe { place.add(at).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
        at += part.len();
    }
    // SAFETY: `bytes` bytes were copied from strings, so they are UTF-8. They are never freed.
    Some(unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(place, bytes)) })
}

//! Prefetches memory that will be read soon.

use std::ops::Range;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches the lines of a range of memory, and does not wait for them. It reads nothing, so any
/// address is allowed.
#[inline(always)]
pub(super) fn fetch(range: Range<*const u8>) {
    let end = range.end.addr();
    let mut line = range.start.map_addr(|start| start / LINE * LINE);
    while line.addr() < end {
        fetch_line(line);
        line = line.wrapping_add(LINE);
    }
}

/// Prefetches the line that a value starts in.
#[inline(always)]
pub(super) fn fetch_start<T>(value: &T) {
    fetch_line(std::ptr::from_ref(value).cast());
}

#[inline(always)]
fn fetch_line(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch(line.cast(), _MM_HINT_T0) };
    }
    // Other processors have no stable prefetch function, and rely on their own prefetching.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

//! The pages of a mapped object: backs them, releases them, and replaces them in a forked child.

use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{FileStatus, NoSpace, Object, Role, keep_from_dumps, open};
use crate::discovery::system::{RETRIES, current_pid, errno, page_size};

/// `MADV_POPULATE_WRITE`, since Linux 5.14.
const MADV_POPULATE_WRITE: libc::c_int = 23;

impl Object {
    /// Backs a range with pages, so that touching it later cannot raise SIGBUS. Any thread may call
    /// it, at any time; it allocates nothing on the heap.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if no pages are free, or the range is not inside the mapping. Some of the pages
    /// may exist then; trying again is allowed.
    pub fn back(&self, offset: usize, len: usize) -> Result<(), NoSpace> {
        let (start, len) = self.pages_of(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        for _ in 0..RETRIES {
            // SAFETY: whole pages inside this mapping. The call only makes pages present, as a
            // write to each would, and returns an error where a write would raise SIGBUS.
            let refused =
                unsafe { libc::madvise(self.map.add(start).cast(), len, MADV_POPULATE_WRITE) };
            if refused == 0 {
                return Ok(());
            }
            match errno() {
                libc::EINTR | libc::EAGAIN => {}
                libc::EINVAL => return self.back_by_fallocate(start, len),
                _ => return Err(NoSpace),
            }
        }
        Err(NoSpace)
    }

    /// Maps private memory in place of the mapping, in a forked child, so that the child's writes
    /// do not reach its parent. The first `used` bytes can be written: zeros, except for a copy of
    /// `kept`. The bytes after the first `used` cannot be touched. This method calls only functions
    /// that are safe in a signal handler, and can be called any number of times.
    ///
    /// If the system refuses, the mapping stays as it was.
    pub(crate) fn detach(&self, used: usize, kept: Range<usize>) {
        let page = page_size();
        let len = self.len.next_multiple_of(page);
        let used = used.next_multiple_of(page).min(len);
        const PRIVATE: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let rest = self.map.wrapping_add(used).cast();
        let close = || {
            const FIXED: libc::c_int = PRIVATE | libc::MAP_FIXED;
            // SAFETY: a range of this mapping that is not in use.
            unsafe { libc::mmap(rest, len - used, libc::PROT_NONE, FIXED, -1, 0) };
        };
        let open = || {
            // SAFETY: a range of this mapping that is not in use.
            unsafe { libc::munmap(rest, len - used) };
        };
        let map = || {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping, at an address that the kernel chooses.
            let new = unsafe { libc::mmap(std::ptr::null_mut(), used, access, PRIVATE, -1, 0) };
            (new != libc::MAP_FAILED).then_some(new)
        };
        close();
        let first = map();
        // The address space may have no room for a second mapping: then the part that is not in use
        // is unmapped first.
        let new = first.or_else(|| {
            open();
            let new = map();
            if new.is_none() {
                close();
            }
            new
        });
        let Some(new) = new else { return };
        keep_from_dumps(new.cast(), used);
        if kept.end <= used {
            for at in kept.step_by(size_of::<u64>()) {
                // SAFETY: aligned words within both mappings. Other processes write the words of
                // this mapping at any time, and no other code has the new mapping's address.
                unsafe {
                    let word = &*self.map.wrapping_add(at).cast::<AtomicU64>();
                    new.cast::<u8>().wrapping_add(at).cast::<u64>().write(word.load(Relaxed));
                }
            }
        }
        const MOVE: libc::c_int = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: no other code has the address of `new`. The first `used` bytes of this mapping
        // stay mapped, and other processes may change them at any time anyway.
        let moved = unsafe { libc::mremap(new, used, used, MOVE, self.map) };
        if moved == libc::MAP_FAILED {
            // SAFETY: mapped above, and no reference to it exists.
            unsafe { libc::munmap(new, used) };
        }
        if first.is_none() {
            close();
        }
    }

    /// Backs pages on kernels before 5.14, where the file system reserves them.
    fn back_by_fallocate(&self, start: usize, len: usize) -> Result<(), NoSpace> {
        // A child must not reserve pages of its parent's object.
        if let Role::Mapped { pid } = self.role
            && pid != current_pid()
        {
            return Err(NoSpace);
        }
        let file = open(&self.name, libc::O_RDWR | libc::O_NONBLOCK).map_err(|_| NoSpace)?;
        match FileStatus::of(file.as_raw_fd()) {
            Ok(id) if id.is_same_file(&self.file) => {}
            _ => return Err(NoSpace),
        }
        for _ in 0..RETRIES {
            // SAFETY: an open descriptor and plain numbers; no memory involved.
            let refused = unsafe {
                libc::fallocate(
                    file.as_raw_fd(),
                    libc::FALLOC_FL_KEEP_SIZE,
                    start as libc::off_t,
                    len as libc::off_t,
                )
            };
            if refused == 0 {
                return Ok(());
            }
            if !matches!(errno(), libc::EINTR | libc::EAGAIN) {
                break;
            }
        }
        Err(NoSpace)
    }

    /// The whole pages that a range touches.
    fn pages_of(&self, offset: usize, len: usize) -> Result<(usize, usize), NoSpace> {
        let page = page_size();
        let end = offset.checked_add(len).ok_or(NoSpace)?;
        if end > self.len {
            return Err(NoSpace);
        }
        let start = offset - offset % page;
        if len == 0 {
            return Ok((start, 0));
        }
        Ok((start, end.next_multiple_of(page) - start))
    }
}

/// Makes a new mapping sparse if the kernel has filled it at once, as it does for all mappings of a
/// program after `mlockall(MCL_FUTURE)`: the pages are released, and locked again as they are
/// touched. If the system refuses, the mapping stays as it was.
pub(super) fn make_sparse(map: *mut u8, len: usize) {
    // SAFETY: exactly the mapping that was just made, of zeros that no other code has read. Locked
    // pages cannot be released, so they are unlocked first.
    unsafe {
        if libc::munlock(map.cast(), len) == 0
            && libc::madvise(map.cast(), len, libc::MADV_REMOVE) == 0
        {
            const MLOCK_ONFAULT: libc::c_int = 1;
            libc::syscall(libc::SYS_mlock2, map, len, MLOCK_ONFAULT);
        }
    }
}

// Miri does not support the system calls of these tests.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::discovery::object::{backed_bytes, unlink};

    /// Runs the code for old kernels on this kernel.
    #[test]
    fn fallocate_backs_the_same_pages() {
        let page = page_size();
        let object = Object::create(64 * page).unwrap();
        assert_eq!(backed_bytes(object.name()).unwrap(), Some(0));
        object.back_by_fallocate(8 * page, 4 * page).unwrap();
        let backed = backed_bytes(object.name()).unwrap();
        let len = object.file_len().unwrap();
        unlink(object.name()).unwrap();
        assert_eq!(backed, Some(4 * page as u64));
        assert_eq!(len, 64 * page as u64);
    }
}

//! Files that are read in a signal handler, or on a thread that is to be cancelled. They are read
//! by bare system calls, which take no lock and are not cancellation points.

use std::ffi::CStr;

use pfp_shm_layout::descriptors::above_standard;

/// An open file.
#[derive(Debug)]
pub struct File(libc::c_long);

impl File {
    /// Opens a file to read it.
    #[must_use]
    pub fn open(path: &CStr) -> Option<Self> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path is NUL-terminated.
        let file = above_standard(|| unsafe {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags)
        });
        (file >= 0).then_some(Self(file))
    }

    /// Reads the next bytes. Returns their number; `None` on an error.
    pub fn read_next(&self, to: &mut [u8]) -> Option<usize> {
        // SAFETY: the call writes at most the length of the buffer.
        let got = unsafe { libc::syscall(libc::SYS_read, self.0, to.as_mut_ptr(), to.len()) };
        usize::try_from(got).ok()
    }

    /// Fills `to` from an offset. `None` if the file has fewer bytes.
    pub fn read(&self, offset: usize, mut to: &mut [u8]) -> Option<()> {
        let mut offset = libc::off_t::try_from(offset).ok()?;
        while !to.is_empty() {
            let (at, bytes) = (to.as_mut_ptr(), to.len());
            // SAFETY: the call writes at most the length of the buffer.
            let got = unsafe { libc::syscall(libc::SYS_pread64, self.0, at, bytes, offset) };
            let got = usize::try_from(got).ok().filter(|&got| got > 0)?;
            offset = offset.checked_add(libc::off_t::try_from(got).ok()?)?;
            to = to.get_mut(got..)?;
        }
        Some(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor, which is not used again.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

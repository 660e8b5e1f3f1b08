//! How a process ended, as long as the kernel knows.
//!
//! Only the parent collects the exit status. Before the parent does so, `/proc/<pid>/stat` shows
//! the status to processes of the same user. Afterwards, from Linux 6.15 on, a pidfd that was
//! opened while the process lived still has the status. A process that called `exec` continues
//! under its id, without the lock on its beacon.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::discovery::stat::{of_process, read_small};

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It called `exit` or `_exit` with this status.
    Status(u8),
    /// This signal ended it.
    Signal(i32),
    /// It called `exec`, and the program of this name runs in its place.
    ReplacedBy(String),
}

impl End {
    /// Decodes a status of `wait`.
    fn of_wait(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Status((status >> 8) as u8),
            signal => Self::Signal(signal),
        }
    }

    /// How the process of this id ended, or which program replaced it. `start` is its start time as
    /// in [`Stat`](crate::discovery::stat::Stat); a process with another start time has reused the
    /// id.
    pub(crate) fn of(pid: u32, start: u64) -> Option<Self> {
        let stat = of_process(pid)?;
        if start == 0 || stat.start != start {
            return None;
        }
        let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
        if !stat.is_ending() {
            let name =
                exe.ok().and_then(|exe| Some(exe.file_name()?.to_string_lossy().into_owned()));
            return Some(Self::ReplacedBy(name.unwrap_or_else(|| name_of(pid))));
        }
        // The kernel requires the same permission for this link as for the exit status. Without the
        // permission, the status reads 0. With the permission, the link of an ending process fails
        // with another error, because the process has no executable any more.
        match exe {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            _ => Some(Self::of_wait(stat.wait_status)),
        }
    }
}

/// The name of a process in `ps`.
fn name_of(pid: u32) -> String {
    let mut bytes = [0; 64];
    String::from_utf8_lossy(read_small(&format!("/proc/{pid}/comm"), &mut bytes)).trim().to_owned()
}

/// A descriptor of a process, which knows how it ended even after its parent reaped it.
#[derive(Debug)]
pub(crate) struct Descriptor(OwnedFd);

impl Descriptor {
    /// Opens a descriptor of the process that has this id now. `None` before Linux 5.3, or if no
    /// descriptor is free.
    pub(crate) fn open(pid: u32) -> Option<Self> {
        let pid = libc::pid_t::try_from(pid).ok()?;
        // SAFETY: the arguments are plain numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: a descriptor that was just opened and has no other owner.
        Some(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// How the process ended. Unknown until its parent has reaped it, and before Linux 6.15.
    pub(crate) fn end(&self) -> Option<End> {
        /// `struct pidfd_info` of <linux/pidfd.h> as Linux 6.15 has it.
        #[repr(C)]
        #[derive(Default)]
        struct PidfdInfo {
            mask: u64,
            cgroup: u64,
            ids: [u32; 11],
            wait_status: i32,
        }
        const WANTS_EXIT: u64 = 1 << 3;
        /// `_IOWR(0xFF, 11, struct pidfd_info)`
        const GET_INFO: u32 = 3 << 30 | (size_of::<PidfdInfo>() as u32) << 16 | 0xFF << 8 | 11;
        let mut info = PidfdInfo { mask: WANTS_EXIT, ..PidfdInfo::default() };
        // SAFETY: an open descriptor, and a structure of the size that the request states.
        let refused = unsafe { libc::ioctl(self.0.as_raw_fd(), GET_INFO as _, &raw mut info) } != 0;
        (!refused && info.mask & WANTS_EXIT != 0).then(|| End::of_wait(info.wait_status))
    }
}

// Miri does not support the system calls of these tests.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_decoded() {
        for (status, end) in [
            (0, End::Status(0)),
            (7 << 8, End::Status(7)),
            (libc::SIGINT, End::Signal(libc::SIGINT)),
            // The bit 0x80 marks a core dump.
            (libc::SIGABRT | 0x80, End::Signal(libc::SIGABRT)),
        ] {
            assert_eq!(End::of_wait(status), end);
        }
    }

    /// The end of a child is known before and after its parent reaps it.
    #[test]
    fn the_end_of_a_child_is_known() {
        for (signal, end) in [(0, End::Status(7)), (libc::SIGTERM, End::Signal(libc::SIGTERM))] {
            // SAFETY: the child only ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: waits for a signal, or ends the process.
                unsafe {
                    if signal != 0 {
                        libc::pause();
                    }
                    libc::_exit(7)
                }
            }
            let pid = child as u32;
            let start = of_process(pid).unwrap().start;
            let descriptor = Descriptor::open(pid);
            // SAFETY: a signal to our child, or none; zero is an empty `siginfo_t`, which the call
            // fills while the child stays.
            unsafe {
                libc::kill(child, signal);
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let options = libc::WEXITED | libc::WNOWAIT;
                assert_eq!(libc::waitid(libc::P_PID, pid, &raw mut info, options), 0);
            }
            assert_eq!(End::of(pid, start), Some(end.clone()));
            assert_eq!(End::of(pid, start + 1), None, "another process");
            // SAFETY: reaps our child.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            assert_eq!(End::of(pid, start), None);
            // Older kernels do not report it.
            let known = descriptor.and_then(|descriptor| descriptor.end());
            assert!(known.is_none() || known == Some(end), "{known:?}");
        }
    }
}

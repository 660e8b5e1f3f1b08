//! Decides whether a process runs or is dead.
//!
//! The lock on the process's beacon is tried first: the kernel releases that lock exactly when it
//! frees the process's memory, whatever ends the process. A process that asks takes a *shared* lock
//! for a moment, so that two processes that ask at once do not take each other for the owner, whose
//! lock is exclusive. A sweeper holds an exclusive lock, too, while it removes a segment.
//!
//! A process id alone never decides, because ids are reused. An id together with its start time,
//! boot and pid namespace identifies one process for ever, and is used twice:
//!
//! - if a lock is held although that process is certainly gone, the process is dead: the lock's
//!   holder is a sweeper, or a child that was forked between lock and close;
//! - if the file system has no locks, only the identity is left.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::discovery::directory::Directory;
use crate::discovery::end::{Descriptor, End};
use crate::discovery::stat::{Stat, inode_of, of_own_thread, of_process, read_small};
use crate::discovery::system::current_pid;
use crate::heap::ShortText;

/// Whether the process that lit a beacon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs.
    Alive,
    /// It is dead, and could not remove its beacon: it crashed, was killed, called `_exit`, or
    /// became another program by `exec`.
    Dead,
    /// The beacon is gone: the process made an orderly exit, or its beacon was swept.
    Gone,
}

/// Identifies one process for ever. A field is zero if its value is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The process id, as the process itself sees it.
    pub pid: u32,
    /// When it started: field 22 of `/proc/<pid>/stat`, in clock ticks since boot as the first
    /// time namespace counts them.
    pub start: u64,
    /// The boot it belongs to: `/proc/sys/kernel/random/boot_id`.
    pub boot: u128,
    /// The pid namespace in which `pid` counts: the inode of `/proc/self/ns/pid`.
    pub pidns: u64,
}

impl Identity {
    /// The identity of the calling process. Unknown fields are zero.
    pub fn of_this_process() -> Identity {
        let pid = u32::try_from(current_pid()).unwrap_or(0);
        // If /proc counts in another pid namespace, other processes cannot check the id, so the
        // namespace is unknown.
        let stat = of_own_thread(pid);
        let pidns = if stat.is_none() { 0 } else { pid_namespace() };
        Identity { pid, start: stat.map_or(0, |stat| stat.start), boot: boot_id(), pidns }
    }

    /// The identity of the calling thread among the threads of its process: the kernel's id, and
    /// the time when the thread started.
    pub fn of_this_thread() -> Identity {
        // SAFETY: the call has no arguments and cannot fail.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) };
        let pid = u32::try_from(thread).unwrap_or(0);
        let start = of_own_thread(pid).map_or(0, |stat| stat.start);
        Identity { pid, start, boot: 0, pidns: 0 }
    }

    /// Whether the thread of this identity, which [`Self::of_this_thread`] made, runs in the
    /// calling process.
    pub fn is_thread_here(&self) -> bool {
        let (process, thread) = (current_pid(), self.pid);
        // SAFETY: signal 0 is never delivered; the call only finds out whether the id is taken.
        let there = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) } == 0;
        // Ids are reused; an unreadable stat proves nothing.
        there && of_own_thread(thread).is_none_or(|it| self.start == 0 || it.start == self.start)
    }

    /// Evidence from the identity alone, without a lock. `here` is the caller's identity.
    fn evidence(&self, here: &Identity) -> Evidence {
        if self.boot == 0 || here.boot == 0 {
            return Evidence::None;
        }
        if self.boot != here.boot {
            return Evidence::OtherBoot;
        }
        if self.pidns == 0 || self.pidns != here.pidns {
            return Evidence::None;
        }
        let Ok(pid) = libc::pid_t::try_from(self.pid) else {
            return Evidence::None;
        };
        // SAFETY: signal 0 is never delivered; the call only finds out whether the id is taken.
        let missing = unsafe { libc::kill(pid, 0) } != 0
            && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        if missing {
            return Evidence::Gone;
        }
        // Without a start time, a process with this id may or may not be the same process.
        if self.start == 0 {
            return Evidence::None;
        }
        // An unreadable stat proves nothing: /proc may hide foreign processes.
        let path = ShortText::<64>::of(format_args!("/proc/{pid}/task/{pid}/stat"));
        match Stat::read(path.as_str()) {
            Some(stat) if stat.is_over() => Evidence::Gone,
            Some(stat) if stat.start != 0 && stat.start != self.start => Evidence::Gone,
            _ => Evidence::None,
        }
    }

    /// Whether the process runs, by its identity alone: alive unless it is certainly dead.
    pub fn liveness(&self) -> Liveness {
        self.judged_from(&Identity::of_this_process())
    }

    /// How the process ended, if the kernel still knows. `pid` is its id in the caller's `/proc`.
    pub fn end(&self, pid: u32) -> Option<End> {
        if self.boot == 0 || self.boot != boot_id() {
            return None;
        }
        End::of(pid, self.start)
    }

    /// Judges a process by its identity alone, when its lock may be held. `here` is the caller's
    /// identity.
    pub fn judged_from(&self, here: &Identity) -> Liveness {
        match self.evidence(here) {
            Evidence::None => Liveness::Alive,
            Evidence::Gone | Evidence::OtherBoot => Liveness::Dead,
        }
    }
}

/// Evidence that a process is dead. There is no evidence that it lives: even if a process with its
/// id and start time exists, the process may have become another program by `exec`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Evidence {
    None,
    /// The process does not exist in this boot and pid namespace.
    Gone,
    /// The machine was rebooted since, or the file belongs to another machine.
    OtherBoot,
}

/// Whether a signal has stopped the process of this id in the caller's `/proc`.
pub fn is_stopped(pid: u32) -> bool {
    of_process(pid).is_some_and(|stat| stat.is_stopped())
}

/// Whether the process of this id in the caller's `/proc` has ended, and its parent has not reaped
/// it.
pub fn is_zombie(pid: u32) -> bool {
    of_process(pid).is_some_and(|stat| stat.is_over())
}

/// Judges a process by its open beacon.
pub(crate) fn judge(file: &File, process: &Identity) -> io::Result<Liveness> {
    Ok(match is_locked(file)? {
        true => process.judged_from(&Identity::of_this_process()),
        false => Liveness::Dead,
    })
}

/// Whether a process holds a beacon's lock. Also true if the file system has no locks.
fn is_locked(file: &File) -> io::Result<bool> {
    Ok(match lock(file, libc::LOCK_SH)? {
        Lock::Taken => {
            unlock(file);
            false
        }
        Lock::Held | Lock::Unsupported => true,
    })
}

/// Judges one process many times a second. Its beacon stays open, so its lock is cheap to test. The
/// facts that the lock does not show rarely change and cost more, so they are read less often.
#[derive(Debug)]
pub struct Watch {
    beacon: File,
    process: Identity,
    here: Identity,
    /// Time and result of the last full check.
    looked: Option<(Instant, Liveness)>,
    /// Id of the process in this `/proc`, if known.
    pid: Option<u32>,
    descriptor: Option<Descriptor>,
}

impl Watch {
    /// Interval between full checks.
    const PAUSE: Duration = Duration::from_millis(250);

    /// Watches the process that lit a beacon.
    pub(crate) fn new(beacon: File, process: Identity) -> Self {
        let here = Identity::of_this_process();
        Self { beacon, process, here, looked: None, pid: None, descriptor: None }
    }

    /// Stores the id of the process in this `/proc`, for [`Self::end`].
    pub fn follow(&mut self, pid: u32) {
        self.pid = Some(pid);
        let descriptor = Descriptor::open(pid);
        // If the process lives now, it lived when the descriptor was opened, so the descriptor is
        // not one of a later process with the same id.
        let lives = matches!(self.judge(), Ok(Liveness::Alive));
        self.descriptor = descriptor.filter(|_| lives);
    }

    /// How a [`Liveness::Dead`] process ended, if the kernel knows.
    pub fn end(&self) -> Option<End> {
        // `/proc` comes first: if the parent reaps the process in between, the descriptor knows.
        let found = self.pid.and_then(|pid| self.process.end(pid));
        found.or_else(|| self.descriptor.as_ref()?.end())
    }

    /// Whether the process runs. A beacon that was removed reads as dead, because its lock was
    /// released first.
    ///
    /// # Errors
    ///
    /// The lock cannot be tried.
    pub fn judge(&mut self) -> io::Result<Liveness> {
        if !is_locked(&self.beacon)? {
            return Ok(Liveness::Dead);
        }
        if let Some((at, found)) = self.looked
            && at.elapsed() < Self::PAUSE
        {
            return Ok(found);
        }
        let found = self.process.judged_from(&self.here);
        self.looked = Some((Instant::now(), found));
        Ok(found)
    }
}

/// Whether a sweeper may remove a beacon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The beacon's process is dead, and no other sweeper can remove the beacon as long as the file
    /// stays open.
    Firm,
    /// The beacon's process lives, or another sweeper has the lock.
    Refused,
    /// The name leads to another file now, or to none.
    Moved,
}

/// Locks a beacon in order to remove it. `process` is unknown for a file that could not be read.
pub(crate) fn try_lock(
    dir: &Directory,
    name: &CStr,
    file: &File,
    process: Option<&Identity>,
) -> io::Result<Hold> {
    if !take_over(file, process)? {
        return Ok(Hold::Refused);
    }
    // Another sweeper may have removed the beacon between our opening and our locking.
    Ok(if dir.leads_to(name, file)? { Hold::Firm } else { Hold::Moved })
}

fn take_over(file: &File, process: Option<&Identity>) -> io::Result<bool> {
    /// Maximum number of attempts. A process that asks holds the lock for only two system calls, so
    /// a later attempt succeeds.
    const ATTEMPTS: u32 = 256;
    for _ in 0..ATTEMPTS {
        match lock(file, libc::LOCK_EX)? {
            Lock::Taken => return Ok(true),
            // Without locks, a sweeper needs proof that the process is gone. A different boot id
            // does not prove that: the file may belong to another machine, whose processes are not
            // visible here.
            Lock::Unsupported => {
                let here = Identity::of_this_process();
                return Ok(process.is_some_and(|it| it.evidence(&here) == Evidence::Gone));
            }
            Lock::Held => {}
        }
        // Distinguishes an owner from a process that only asks.
        match lock(file, libc::LOCK_SH)? {
            Lock::Taken => unlock(file),
            Lock::Held | Lock::Unsupported => return Ok(false),
        }
        std::thread::yield_now();
    }
    Ok(false)
}

/// The outcome of trying a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Taken,
    Held,
    Unsupported,
}

/// Tries to lock an open file description, without waiting.
pub(crate) fn lock(file: &File, kind: libc::c_int) -> io::Result<Lock> {
    loop {
        // SAFETY: an open descriptor and plain numbers.
        if unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) } == 0 {
            return Ok(Lock::Taken);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EWOULDBLOCK) => return Ok(Lock::Held),
            Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(Lock::Unsupported),
            _ => return Err(error),
        }
    }
}

/// Releases a lock. Closing would not be enough: a child forked in between has the same open file
/// description.
fn unlock(file: &File) {
    // SAFETY: an open descriptor and a plain number. A failure could not be handled.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

fn boot_id() -> u128 {
    let mut bytes = [0; 64];
    let text = read_small("/proc/sys/kernel/random/boot_id", &mut bytes);
    let digits = text.iter().filter_map(|&byte| char::from(byte).to_digit(16));
    digits.fold(0, |id, digit| id << 4 | u128::from(digit))
}

fn pid_namespace() -> u64 {
    inode_of("/proc/self/ns/pid").unwrap_or(0)
}

// Miri does not support the system calls of these tests.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// A dead process that was not reaped still has its id and its start time.
    #[test]
    fn a_zombie_is_gone() {
        // SAFETY: the child only ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        let stat = || Stat::read(&format!("/proc/{child}/stat")).unwrap();
        // Waits until all threads of the child have ended: an emulator adds a thread of its own.
        // SAFETY: zero is an empty `siginfo_t`, which the call fills; the child stays.
        let ended = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, child as u32, &raw mut info, libc::WEXITED | libc::WNOWAIT)
        };
        assert!(ended == 0 && stat().is_over());
        let me = Identity::of_this_process();
        let zombie = Identity { pid: child as u32, start: stat().start, ..me };
        let found = zombie.evidence(&me);
        // SAFETY: waits for our child.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert!(found == Evidence::Gone);
    }

    #[test]
    fn this_process_has_a_whole_identity_and_is_not_gone() {
        let me = Identity::of_this_process();
        assert_eq!(me.pid, std::process::id());
        assert!(me.start != 0 && me.boot != 0 && me.pidns != 0);
        assert!(me.evidence(&me) == Evidence::None);
        let reused = Identity { start: me.start - 1, ..me };
        assert!(reused.evidence(&me) == Evidence::Gone);
        // Without a start time, a process is known to be gone only if no process has its id.
        let without_start = Identity { start: 0, ..me };
        assert!(without_start.evidence(&me) == Evidence::None);
        let past = Identity { pid: i32::MAX as u32, ..without_start };
        assert!(past.evidence(&me) == Evidence::Gone);
        let elsewhere = Identity { pidns: me.pidns + 1, ..reused };
        assert!(elsewhere.evidence(&me) == Evidence::None);
    }
}

//! Tells a running process from a dead one.
//!
//! The lock on its beacon is asked first: the kernel takes it away exactly
//! when the process's memory goes, by whatever end. Who asks takes a *shared*
//! lock for a moment, so that two who ask do not see each other as the owner,
//! whose lock is exclusive; so is a sweeper's, who holds it while it removes.
//!
//! A process id alone never decides, since ids come round again. An id
//! together with its start time, boot and pid namespace names one process for
//! ever, and serves twice:
//!
//! - a lock that is held although that process is certainly gone is a
//!   sweeper's, or a child's that was forked in the instant between lock and
//!   close: dead;
//! - where the file system has no locks, it is all there is.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::descriptors::above_standard;
use crate::discovery::directory::Directory;
use crate::discovery::system::current_pid;

/// Whether the process that lit a beacon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs.
    Alive,
    /// It is dead, and could not put out its beacon: it crashed, was killed,
    /// or became another program by `exec`.
    Dead,
    /// There is no such beacon: the process ended in order, or somebody has
    /// swept since.
    Gone,
}

/// Names one process for ever. A zero stands for what could not be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The process id, as the process itself sees it.
    pub pid: u32,
    /// When it started: field 22 of `/proc/<pid>/stat`, in clock ticks since boot.
    pub start: u64,
    /// The boot it belongs to: `/proc/sys/kernel/random/boot_id`.
    pub boot: u128,
    /// The pid namespace in which `pid` counts: the inode of `/proc/self/ns/pid`.
    pub pidns: u64,
}

impl Identity {
    /// Of the calling process. What cannot be read is zero.
    pub fn of_this_process() -> Identity {
        let pid = u32::try_from(current_pid()).unwrap_or(0);
        // If /proc counts in another pid namespace, nobody could check.
        let start = thread_start(pid).unwrap_or(0);
        let pidns = if start == 0 { 0 } else { pid_namespace() };
        Identity { pid, start, boot: boot_id(), pidns }
    }

    /// Of the calling thread, among the threads of its process: the kernel's id and when
    /// the thread started.
    pub fn of_this_thread() -> Identity {
        // SAFETY: takes nothing and cannot fail.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) };
        let pid = u32::try_from(thread).unwrap_or(0);
        Identity { pid, start: thread_start(pid).unwrap_or(0), boot: 0, pidns: 0 }
    }

    /// Whether that thread runs in the calling process.
    pub fn is_thread_here(&self) -> bool {
        let (process, thread) = (current_pid(), self.pid);
        // SAFETY: signal 0 is never delivered; this only asks whether the id is taken.
        let there = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) } == 0;
        // Ids come round again; an unreadable stat says nothing.
        there && thread_start(thread).is_none_or(|start| self.start == 0 || start == self.start)
    }

    /// What can be known without asking a lock, by a process that knows itself.
    fn evidence(&self, here: &Identity) -> Evidence {
        if self.boot == 0 || here.boot == 0 {
            return Evidence::None;
        }
        if self.boot != here.boot {
            return Evidence::OtherBoot;
        }
        if self.pidns == 0 || self.pidns != here.pidns || self.start == 0 {
            return Evidence::None;
        }
        let Ok(pid) = libc::pid_t::try_from(self.pid) else {
            return Evidence::None;
        };
        // SAFETY: signal 0 is never delivered; this only asks whether the id is taken.
        let missing = unsafe { libc::kill(pid, 0) } != 0
            && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        if missing {
            return Evidence::Gone;
        }
        // An unreadable stat says nothing: /proc may hide foreign processes.
        match Stat::read(&format!("/proc/{pid}/task/{pid}/stat")) {
            Some(stat) if stat.start != self.start || stat.is_over() => Evidence::Gone,
            _ => Evidence::None,
        }
    }

    /// Of a process whose lock may be held.
    pub(crate) fn judged_from(&self, here: &Identity) -> Liveness {
        match self.evidence(here) {
            Evidence::None => Liveness::Alive,
            Evidence::Gone | Evidence::OtherBoot => Liveness::Dead,
        }
    }
}

/// What an identity proves. That a process is there proves nothing: it may
/// have become another program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Evidence {
    None,
    /// No process of this boot and pid namespace is the one named.
    Gone,
    /// The machine was booted since, or the file belongs to another machine.
    OtherBoot,
}

/// Judges by an open beacon.
pub(crate) fn judge(file: &File, process: &Identity) -> io::Result<Liveness> {
    Ok(match is_locked(file)? {
        true => process.judged_from(&Identity::of_this_process()),
        false => Liveness::Dead,
    })
}

/// Whether somebody holds a beacon's lock, or could without showing it.
fn is_locked(file: &File) -> io::Result<bool> {
    Ok(match lock(file, libc::LOCK_SH)? {
        Lock::Taken => {
            unlock(file);
            false
        }
        Lock::Held | Lock::Unsupported => true,
    })
}

/// Judges one process many times a second: its beacon stays open, and what a
/// lock cannot tell, which hardly ever differs and costs more, is looked up
/// only every so often.
#[derive(Debug)]
pub struct Watch {
    beacon: File,
    process: Identity,
    here: Identity,
    /// When and as what it was last judged by more than the lock.
    looked: Option<(Instant, Liveness)>,
}

impl Watch {
    /// Between two looks at more than the lock.
    const PAUSE: Duration = Duration::from_millis(250);

    /// Watches the process that lit a beacon.
    pub(crate) fn new(beacon: File, process: Identity) -> Self {
        Self { beacon, process, here: Identity::of_this_process(), looked: None }
    }

    /// Whether the process runs. A beacon that was put out reads as dead: its
    /// lock went first.
    ///
    /// # Errors
    ///
    /// The lock cannot be asked.
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

/// What a sweeper may do with a beacon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Its process is dead, nobody else is removing it, and as long as the
    /// file stays open nobody else will.
    Firm,
    /// Its process lives, or another sweeper has it.
    Refused,
    /// The name leads to another file by now, or to none.
    Moved,
}

/// Takes hold of a beacon in order to remove it. `process` is unknown for a
/// file that could not be read.
pub(crate) fn try_lock(
    dir: &Directory,
    name: &CStr,
    file: &File,
    process: Option<&Identity>,
) -> io::Result<Hold> {
    if !take_over(file, process)? {
        return Ok(Hold::Refused);
    }
    // Another sweeper may have been here between our opening and our locking.
    Ok(if dir.leads_to(name, file)? { Hold::Firm } else { Hold::Moved })
}

fn take_over(file: &File, process: Option<&Identity>) -> io::Result<bool> {
    /// Askers hold their lock for two system calls.
    const PATIENCE: u32 = 256;
    for _ in 0..PATIENCE {
        match lock(file, libc::LOCK_EX)? {
            Lock::Taken => return Ok(true),
            // Without locks only proof will do; another boot's file might be
            // another machine's, whose processes we cannot see.
            Lock::Unsupported => {
                let here = Identity::of_this_process();
                return Ok(process.is_some_and(|it| it.evidence(&here) == Evidence::Gone));
            }
            Lock::Held => {}
        }
        // Refused because of an owner, or only because somebody is asking?
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

/// Gives a lock back. Closing would not be enough: a child forked meanwhile
/// has the same open file description.
fn unlock(file: &File) {
    // SAFETY: an open descriptor and a plain number. It cannot usefully fail.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

/// What a `/proc/<pid>/stat` line says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stat {
    pid: u32,
    /// A letter, such as `S` for sleeping.
    state: u8,
    /// Those that have not ended, and the first one.
    threads: u32,
    /// In clock ticks since boot.
    start: u64,
}

/// What a small file of the kernel's says, which tells all at the first call; nothing where it
/// cannot be read.
fn read_small<'a>(path: &str, bytes: &'a mut [u8]) -> &'a [u8] {
    let read = above_standard(|| File::open(path)).and_then(|mut file| file.read(bytes));
    &bytes[..read.unwrap_or(0)]
}

impl Stat {
    /// None where it cannot be read.
    fn read(path: &str) -> Option<Self> {
        Self::parse(read_small(path, &mut [0; 1024]))
    }

    /// The program's name, in brackets, may itself hold spaces and brackets.
    fn parse(stat: &[u8]) -> Option<Self> {
        let open = stat.iter().position(|&b| b == b'(')?;
        let close = stat.iter().rposition(|&b| b == b')')?;
        let pid = std::str::from_utf8(stat.get(..open)?).ok()?.trim();
        let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
        // The state, field 3, is the first after the bracket.
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let threads = fields.nth(20 - 4)?.parse().ok()?;
        let start = fields.nth(22 - 21)?.parse().ok()?;
        Some(Self { pid: pid.parse().ok()?, state, threads, start })
    }

    /// Whether the process has ended, and only waits for its parent to take notice. A
    /// first thread that has ended before others looks the same but for their number.
    fn is_over(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// When a thread of this process started. The first one did when the process did; emulators
/// make up what the process's own `stat` says.
fn thread_start(thread: u32) -> Option<u64> {
    let stat = Stat::read(&format!("/proc/self/task/{thread}/stat"))?;
    (stat.pid == thread).then_some(stat.start)
}

fn boot_id() -> u128 {
    let mut bytes = [0; 64];
    let text = str::from_utf8(read_small("/proc/sys/kernel/random/boot_id", &mut bytes));
    u128::from_str_radix(&text.unwrap_or_default().trim().replace('-', ""), 16).unwrap_or(0)
}

fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino())
}

// Miri has no system to ask.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_past_any_program_name() {
        let tail = "S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 4711 0 0";
        let stat = Stat { pid: 42, state: b'S', threads: 20, start: 4711 };
        for name in ["cat", "a b", "x) S 1 (y", ")", "(", ""] {
            let line = format!("42 ({name}) {tail}");
            assert_eq!(Stat::parse(line.as_bytes()), Some(stat), "{name}");
        }
        for wrong in ["", "42", "42 (cat", "42 (cat) S 1 2", ") (", "x (cat) S"] {
            assert_eq!(Stat::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    /// A process that is dead and was not waited for still has its id and its start.
    #[test]
    fn a_zombie_is_gone_and_a_first_thread_that_ended_is_not() {
        // SAFETY: the child only ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        let stat = || std::fs::read(format!("/proc/{child}/stat")).unwrap();
        // Until all of its threads have ended: an emulator has one of its own.
        // SAFETY: zero is an empty `siginfo_t`, which the call fills; the child stays.
        let ended = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, child as u32, &raw mut info, libc::WEXITED | libc::WNOWAIT)
        };
        assert_eq!((ended, Stat::parse(&stat()).unwrap().state), (0, b'Z'));
        let me = Identity::of_this_process();
        let start = Stat::parse(&stat()).unwrap().start;
        let zombie = Identity { pid: child as u32, start, ..me };
        let found = zombie.evidence(&me);
        // SAFETY: waits for our child.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert!(found == Evidence::Gone);
        let first = Stat { pid: 1, state: b'Z', threads: 2, start: 1 };
        assert!(!first.is_over() && Stat { threads: 1, ..first }.is_over());
    }

    #[test]
    fn this_process_has_a_whole_identity_and_is_not_gone() {
        let me = Identity::of_this_process();
        assert_eq!(me.pid, std::process::id());
        assert!(me.start != 0 && me.boot != 0 && me.pidns != 0);
        assert!(me.evidence(&me) == Evidence::None);
        let reused = Identity { start: me.start - 1, ..me };
        assert!(reused.evidence(&me) == Evidence::Gone);
        let elsewhere = Identity { pidns: me.pidns + 1, ..reused };
        assert!(elsewhere.evidence(&me) == Evidence::None);
    }
}

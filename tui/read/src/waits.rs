//! What the threads of a process wait for, sampled from outside.
//!
//! A [`Sampler`] reads `/proc` of a process of this user. It does not stop the process, and the
//! process need not be instrumented. For each thread, a sample has the CPU time and the time in the
//! run queue, both exact, and the [`Wait`] of a thread that is off the CPU:
//!
//! ```text
//! task/TID/schedstat   time on a CPU, time in the run queue, number of times on a CPU
//! task/TID/syscall     the system call that waits, with its arguments, the stack and the code
//! task/TID/wchan       the function of the kernel that waits: without the right to read `syscall`
//! ```
//!
//! If a thread has not been on a CPU since the last sample and is in the same call, it is in the same
//! wait. So the length of a wait is known to within one sample.
//!
//! A [`Watch`] samples one process, and joins each sample with the thread's open regions. `WaitTimes`
//! adds the samples up, and a [`WaitsReport`] is the result as plain data.

mod calls;
mod futex;
mod merged;
mod names;
mod process;
mod report;
mod times;
mod totals;
mod watch;
mod words;

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

pub use self::merged::ReportPart;
use self::names::Names;
use self::process::{Call, Process};
pub use self::report::{
    EndedWait, Link, LockReport, PointReport, ReasonReport, SampledStack, Waiter, Waiting,
    WaitsReport,
};
pub use self::totals::{WaitTotal, WaitTotals};
pub(crate) use self::watch::WaitsThread;
pub use self::watch::Watch;
pub use self::words::{RUN_QUEUE, RUNNING, ReasonRow, TimePart, held_up, verdict};

/// How closely the waits of a process are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitNeeds {
    /// Nothing: the process is not sampled.
    #[default]
    Nothing,
    /// With at most 0.4 % of a CPU, and a report a second.
    Summary,
    /// With at most 2 % of a CPU, and four reports a second.
    Reasons,
    /// Like `Reasons`; reports also have the sampled stacks of open regions.
    Stacks,
}

/// The kind of a wait.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A mutex or a read-write lock.
    Lock,
    /// A condition variable.
    Condition,
    /// A semaphore.
    Semaphore,
    /// A barrier.
    Barrier,
    /// The end of another thread.
    Join,
    /// A futex of an unknown purpose: a lock, a condition, or a parked thread.
    Futex,
    /// A lock of a file.
    FileLock,
    /// A time.
    Sleep,
    /// Data to read.
    Read,
    /// Room to write.
    Write,
    /// A connection from a peer.
    Accept,
    /// An answer to a connection that the thread opens.
    Connect,
    /// One of several descriptors.
    Poll,
    /// A disk, until written data is stored.
    Sync,
    /// Memory: a page that must be read or made.
    PageFault,
    /// The end of a child process.
    Child,
    /// A signal.
    Signal,
    /// A signal that lets the stopped thread continue, or a debugger.
    Stopped,
    /// Something else, in the kernel's words if there are any.
    #[default]
    Other,
}

impl Kind {
    /// The kind in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Condition => "condition",
            Self::Semaphore => "semaphore",
            Self::Barrier => "barrier",
            Self::Join => "join",
            Self::Futex => "futex",
            Self::FileLock => "file lock",
            Self::Sleep => "sleep",
            Self::Read => "read",
            Self::Write => "write",
            Self::Accept => "accept",
            Self::Connect => "connect",
            Self::Poll => "poll",
            Self::Sync => "fsync",
            Self::PageFault => "page fault",
            Self::Child => "child process",
            Self::Signal => "signal",
            Self::Stopped => "stopped",
            Self::Other => "unknown",
        }
    }

    /// Whether another thread ends the wait by releasing something that has an address.
    pub fn has_address(self) -> bool {
        use Kind::{Barrier, Condition, Futex, Lock, Semaphore};
        matches!(self, Lock | Condition | Semaphore | Barrier | Futex)
    }
}

/// Why a thread waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Reason {
    /// The kind of the wait.
    pub kind: Kind,
    /// What the thread waits for: a lock's name or address, a file, a peer, a thread; empty if
    /// unknown.
    pub detail: String,
}

impl Reason {
    /// The variable that the thread waits for. `None` if the thread waits for something without a
    /// name in the program.
    fn variable(&self) -> Option<&str> {
        let is_name = self.kind.has_address() && !self.detail.starts_with("0x");
        is_name.then_some(self.detail.as_str())
    }
}

/// `lock JOBS`
impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.kind, self.detail.as_str()) {
            (kind, "") => f.write_str(kind.words()),
            (Kind::Other, detail) => f.write_str(detail),
            (kind, detail) => write!(f, "{} {detail}", kind.words()),
        }
    }
}

/// A wait that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Why the thread waits.
    pub reason: Rc<Reason>,
    /// The address that identifies the lock or the like, in the process's memory; 0 if the wait has
    /// none.
    pub address: u64,
    /// Kernel id of the thread that must act: a lock's owner, or a thread that is joined. `None` if
    /// unknown.
    pub owner: Option<u32>,
    /// Whether the wait ends by itself after a time.
    pub is_timed: bool,
}

impl Wait {
    /// Whether the wait is for a lock or the like that has an address.
    pub fn has_address(&self) -> bool {
        self.address != 0 && self.reason.kind.has_address()
    }
}

/// One thread at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSample {
    /// Kernel id of the thread.
    pub tid: u32,
    /// Its id in its own pid namespace, which is the one that the process itself knows.
    pub id_inside: u32,
    /// When it was read.
    pub at: Instant,
    /// Time on a CPU since the thread began, nanoseconds. The kernel counts the current run late,
    /// by up to a tick (1 to 10 ms).
    pub run_ns: u64,
    /// Time in the run queue since the thread began, nanoseconds: it could run, but had no CPU.
    pub queued_ns: u64,
    /// How many times the thread was put on a CPU.
    pub runs: u64,
    /// The wait. `None` if the thread runs, or is in the run queue.
    pub wait: Option<Wait>,
}

/// Samples the threads of one process.
#[derive(Debug)]
pub struct Sampler {
    process: Process,
    names: Names,
    /// The last sample and call of each thread, for waits that continue.
    last: HashMap<u32, (ThreadSample, Option<Call>)>,
    /// Whether the process is in another pid namespace than our `/proc`.
    is_elsewhere: bool,
    /// Why the system calls of the process cannot be read, if so.
    limit: Option<String>,
}

impl Sampler {
    /// A sampler of the process with this id in our `/proc`.
    ///
    /// # Errors
    ///
    /// If there is no such process, or if the kernel does not count times in the run queue.
    pub fn of(pid: u32) -> io::Result<Self> {
        let mut process = Process::of(pid)?;
        // Every thread has been on a CPU, so a count of 0 means that the kernel does not count.
        if process.schedule(pid).is_none_or(|(.., runs)| runs == 0) {
            let why = "the kernel does not count runs in /proc/PID/schedstat (CONFIG_SCHED_INFO, \
                       delayacct), or the process has just ended";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let names = Names::of(&process);
        let is_elsewhere = process.id_inside(pid).is_some();
        let limit = process
            .is_32_bit()
            .then(|| format!("[{pid}] is a program of 32 bits: only kinds of waits are known"));
        Ok(Self { process, names, last: HashMap::new(), is_elsewhere, limit })
    }

    /// Reads every thread of the process. A thread that ends meanwhile is left out.
    ///
    /// # Errors
    ///
    /// If the process has ended, or if its threads may not be read.
    pub fn sample(&mut self) -> io::Result<Vec<ThreadSample>> {
        let threads = self.process.threads()?;
        self.process.keep_open(&threads);
        let ids: Vec<_> = threads.iter().map(|tid| (self.id_inside(*tid), *tid)).collect();
        self.names.refresh(&ids);
        let samples: Vec<_> =
            ids.iter().filter_map(|(inside, tid)| self.sample_one(*tid, *inside)).collect();
        self.last = samples.iter().map(|it| (it.0.tid, it.clone())).collect();
        Ok(samples.into_iter().map(|(sample, _)| sample).collect())
    }

    /// Whether the thread has not been on a CPU since it was read.
    pub fn is_unchanged(&mut self, sample: &ThreadSample) -> bool {
        self.process.schedule(sample.tid).is_some_and(|(_, _, runs)| runs == sample.runs)
    }

    /// Why waits are known only by the kernel's function and not by the system call. `None` if
    /// system calls can be read.
    pub fn limit(&self) -> Option<String> {
        self.limit.clone()
    }

    /// Name of a thread, cut to 15 bytes by the kernel; empty if the thread has ended.
    pub fn name(&self, tid: u32) -> String {
        self.process.name(tid)
    }

    /// Id of a thread in its own pid namespace.
    fn id_inside(&self, tid: u32) -> u32 {
        if !self.is_elsewhere {
            return tid;
        }
        let known = self.last.get(&tid).map(|(sample, _)| sample.id_inside);
        known.or_else(|| self.process.id_inside(tid)).unwrap_or(tid)
    }

    /// One thread, with its call. `None` if the thread has ended.
    fn sample_one(&mut self, tid: u32, id_inside: u32) -> Option<(ThreadSample, Option<Call>)> {
        let (at, schedule) = (Instant::now(), self.process.schedule(tid)?);
        let (run_ns, queued_ns, runs) = schedule;
        let call = self.call(tid)?;
        let before = self.last.get(&tid).filter(|(before, _)| before.runs == runs);
        let wait = match before {
            _ if call == Some(Call::Runs) => None,
            Some((ThreadSample { wait: Some(wait), .. }, known)) if *known == call => {
                Some(self.names.renew(&self.process, wait.clone(), call.as_ref()))
            }
            _ => match self.process.state(tid)? {
                'Z' | 'X' => return None,
                'R' => None,
                'T' | 't' => Some(names::plain(Kind::Stopped, "")),
                _ => Some(self.names.wait(&self.process, tid, call.as_ref())),
            },
        };
        Some((ThreadSample { tid, id_inside, at, run_ns, queued_ns, runs, wait }, call))
    }

    /// What a thread does: `Some(None)` if its system calls may not be read, `None` if the thread
    /// has ended.
    fn call(&mut self, tid: u32) -> Option<Option<Call>> {
        if self.limit.is_some() {
            return Some(None);
        }
        match self.process.call(tid) {
            Ok(call) => Some(Some(call)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.limit = Some(self.process.why_refused());
                Some(None)
            }
            Err(_) => None,
        }
    }
}

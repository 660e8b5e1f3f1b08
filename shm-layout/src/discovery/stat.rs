//! Reads `/proc/<pid>/stat` of a process or thread.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use crate::descriptors::above_standard;
use crate::discovery::time_namespace;
use crate::heap::ShortText;

/// The kernel's `PF_EXITING`: the process is ending, and no longer runs its own code.
const EXITING: u32 = 0x4;

/// The fields that pfp uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    /// A letter, such as `S` for sleeping.
    state: u8,
    /// The kernel's `PF_*` flags.
    flags: u32,
    /// Number of threads that have not ended; the first thread always counts.
    threads: u32,
    /// Start time, in clock ticks since boot as the first time namespace counts them; 0 if unknown.
    pub(crate) start: u64,
    /// How the process ended, as `wait` encodes it. Zero if the caller may not read it.
    pub(crate) wait_status: i32,
}

impl Stat {
    /// Reads the file at `path`. `None` if it cannot be read.
    pub(crate) fn read(path: &str) -> Option<Self> {
        let stat = Self::parse(read_small(path, &mut [0; 1024]))?;
        Some(Self { start: time_namespace::start_in_first(stat.start).unwrap_or(0), ..stat })
    }

    /// Parses a line. The program's name, in brackets, may itself hold spaces and brackets.
    fn parse(stat: &[u8]) -> Option<Self> {
        let open = stat.iter().position(|&b| b == b'(')?;
        let close = stat.iter().rposition(|&b| b == b')')?;
        let pid = std::str::from_utf8(stat.get(..open)?).ok()?.trim();
        let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
        // The state, field 3, is the first after the bracket.
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let flags = fields.nth(9 - 4)?.parse().ok()?;
        let threads = fields.nth(20 - 10)?.parse().ok()?;
        let start = fields.nth(22 - 21)?.parse().ok()?;
        let wait_status = fields.nth(52 - 23).and_then(|field| field.parse().ok()).unwrap_or(0);
        Some(Self { pid: pid.parse().ok()?, state, flags, threads, start, wait_status })
    }

    /// Whether the process has ended and waits for its parent to reap it. A first thread that
    /// ended before others looks the same, except that several threads are counted.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// Whether the process has ended or is ending.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.state, b'Z' | b'X') || self.flags & EXITING != 0
    }

    /// Whether a signal has stopped the process.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state == b'T'
    }
}

/// Reads a small file of the kernel, which returns all of it at the first call. Empty if it cannot
/// be read.
#[allow(clippy::disallowed_methods, reason = "only a long path takes memory")]
pub(crate) fn read_small<'a>(path: &str, bytes: &'a mut [u8]) -> &'a [u8] {
    let read = above_standard(|| File::open(path)).and_then(|mut file| file.read(bytes));
    &bytes[..read.unwrap_or(0)]
}

/// The inode that one of the kernel's short paths leads to.
#[allow(clippy::disallowed_methods, reason = "only a long path takes memory")]
pub(crate) fn inode_of(path: &str) -> Option<u64> {
    Some(std::fs::metadata(path).ok()?.ino())
}

/// The stat of a process, by its id in this `/proc`.
pub(crate) fn of_process(pid: u32) -> Option<Stat> {
    Stat::read(ShortText::<64>::of(format_args!("/proc/{pid}/stat")).as_str())
}

/// The stat of a thread of this process. The first thread's stat is also used for the process,
/// since both started together, and emulators invent the process's own `stat`.
pub(crate) fn of_own_thread(thread: u32) -> Option<Stat> {
    let path = ShortText::<64>::of(format_args!("/proc/self/task/{thread}/stat"));
    let stat = Stat::read(path.as_str())?;
    (stat.pid == thread).then_some(stat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_past_any_program_name() {
        let tail = "S 4 5 6 7 8 4 10 11 12 13 14 15 16 17 18 19 20 21 4711 0 0";
        let mut stat =
            Stat { pid: 42, state: b'S', flags: 4, threads: 20, start: 4711, ..Stat::default() };
        for name in ["cat", "a b", "x) S 1 (y", ")", "(", ""] {
            let line = format!("42 ({name}) {tail}");
            assert_eq!(Stat::parse(line.as_bytes()), Some(stat), "{name}");
        }
        // Fields 25 to 51, and the 52nd.
        let line = format!("42 (cat) {tail}{} 1792", " 0".repeat(27));
        stat.wait_status = 7 << 8;
        assert_eq!(Stat::parse(line.as_bytes()), Some(stat));
        for wrong in ["", "42", "42 (cat", "42 (cat) S 1 2", ") (", "x (cat) S"] {
            assert_eq!(Stat::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_first_thread_that_ended_before_others_is_not_the_end() {
        let first = Stat { state: b'Z', threads: 2, ..Stat::default() };
        assert!(!first.is_over() && Stat { threads: 1, ..first }.is_over());
        let running = Stat { state: b'R', ..Stat::default() };
        assert!(!running.is_ending() && Stat { flags: 0x40_0044, ..running }.is_ending());
    }
}

//! Reads `/proc` and the memory of one process.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::source::namespaces::{effective_user, id_inside};

/// Maximum number of threads whose files stay open between samples.
const MOST_OPEN: usize = 256;

/// A process in our `/proc`.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    folder: PathBuf,
    /// The files that each sample reads.
    open: HashMap<u32, ThreadFiles>,
}

/// The files of a thread that each sample reads. They stay open, since opening takes most of the
/// time.
#[derive(Debug, Default)]
struct ThreadFiles {
    schedule: Option<File>,
    call: Option<File>,
}

/// What a thread does, by its `syscall` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// It runs, or waits for a CPU.
    Runs,
    /// It waits outside any system call, as for a page.
    Outside,
    /// It waits in a system call.
    In {
        /// The number of the call.
        number: i64,
        /// Its arguments.
        arguments: [u64; 6],
        /// The stack pointer of the thread.
        stack: u64,
        /// The address of the instruction after the call.
        code: u64,
    },
}

impl Process {
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        fs::metadata(&folder)?;
        Ok(Self { pid, folder, open: HashMap::new() })
    }

    /// The ids of its threads, the least first.
    pub(super) fn threads(&self) -> io::Result<Vec<u32>> {
        let mut found = Vec::new();
        for thread in fs::read_dir(self.folder.join("task"))? {
            found.extend(thread?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        found.sort_unstable();
        match found.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(found),
        }
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn path(&self, tid: u32, file: &str) -> PathBuf {
        self.folder.join(format!("task/{tid}/{file}"))
    }

    fn read(&self, tid: u32, file: &str) -> io::Result<String> {
        text_of(&self.path(tid, file))
    }

    /// Whether the program is one of 32 bits, whose system calls have other numbers.
    pub(super) fn is_32_bit(&self) -> bool {
        const CLASS_32: u8 = 1;
        let mut header = [0; 5];
        let read = File::open(self.folder.join("exe")).and_then(|exe| exe.read_at(&mut header, 0));
        read.is_ok_and(|read| read == header.len()) && header[4] == CLASS_32
    }

    /// Closes the files of threads that are not among these, the least first.
    pub(super) fn keep_open(&mut self, threads: &[u32]) {
        self.open.retain(|tid, _| threads.binary_search(tid).is_ok());
    }

    /// Reads a file of a thread that stays open. The kernel makes its contents anew for each read.
    fn read_again(
        &mut self,
        tid: u32,
        name: &str,
        file: fn(&mut ThreadFiles) -> &mut Option<File>,
    ) -> io::Result<String> {
        if self.open.len() >= MOST_OPEN && !self.open.contains_key(&tid) {
            return self.read(tid, name);
        }
        let path = self.path(tid, name);
        let file = file(self.open.entry(tid).or_default());
        let mut bytes = [0; 256];
        let again = file.as_ref().and_then(|open| open.read_at(&mut bytes, 0).ok());
        let read = match again {
            Some(read) => read,
            // The file is not open, or it belongs to an earlier thread with the same id.
            None => file.insert(File::open(path)?).read_at(&mut bytes, 0)?,
        };
        Ok(String::from_utf8_lossy(&bytes[..read]).into_owned())
    }

    /// Nanoseconds on a CPU and in the run queue, and how many times the thread was put on a CPU.
    /// `None` if the thread has ended.
    pub(super) fn schedule(&mut self, tid: u32) -> Option<(u64, u64, u64)> {
        let text = self.read_again(tid, "schedstat", |files| &mut files.schedule).ok()?;
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some((next()?, next()?, next()?))
    }

    /// What the thread does.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if the kernel does not show it to this user; another error if the thread
    /// has ended.
    pub(super) fn call(&mut self, tid: u32) -> io::Result<Call> {
        parse_call(&self.read_again(tid, "syscall", |files| &mut files.call)?)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Id of a thread in its own pid namespace. `None` if that is the namespace of our `/proc`.
    pub(super) fn id_inside(&self, tid: u32) -> Option<u32> {
        id_inside(&self.read(tid, "status").ok()?)
    }

    /// The letter of the thread's state, such as `S`. `None` if the thread has ended.
    pub(super) fn state(&self, tid: u32) -> Option<char> {
        let text = self.read(tid, "stat").ok()?;
        // The name before the state is in parentheses and may contain any character.
        text[text.rfind(')')? + 1..].trim_start().chars().next()
    }

    /// The function of the kernel in which the thread waits; empty if unknown.
    pub(super) fn kernel_function(&self, tid: u32) -> String {
        let name = self.read(tid, "wchan").unwrap_or_default();
        if name == "0" { String::new() } else { name }
    }

    /// The thread's name; empty if the thread has ended.
    pub(super) fn name(&self, tid: u32) -> String {
        self.read(tid, "comm").unwrap_or_default().trim_end_matches('\n').to_owned()
    }

    /// Reads the process's memory. False if it cannot be read.
    pub(super) fn memory(&self, address: u64, bytes: &mut [u8]) -> bool {
        let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let there = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: `here` is the live slice `bytes`, which the call may fill. `there` is an address
        // in the other process, which the kernel checks.
        let read = unsafe {
            libc::process_vm_readv(
                self.pid.cast_signed(),
                &raw const here,
                1,
                &raw const there,
                1,
                0,
            )
        };
        usize::try_from(read) == Ok(bytes.len())
    }

    /// The 32-bit words at an address. `None` if they cannot be read.
    pub(super) fn words<const N: usize>(&self, address: u64) -> Option<[u32; N]> {
        let mut words = [0; N];
        let mut bytes = vec![0; N * size_of::<u32>()];
        if !self.memory(address, &mut bytes) {
            return None;
        }
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u32>())) {
            *word = u32::from_ne_bytes(bytes.try_into().ok()?);
        }
        Some(words)
    }

    /// Why the kernel does not show the system calls of the process, and what to do.
    pub(super) fn why_refused(&self) -> String {
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        let is_ours = |it: fs::Metadata| it.uid() == effective_user();
        let scope = match fs::metadata(&self.folder).is_ok_and(is_ours) {
            true => scope.trim(),
            false => "",
        };
        let (known, why) = match scope {
            "1" => (
                ", only kinds of waits",
                "kernel.yama.ptrace_scope is 1, so only a parent may read them: start the program \
                 by `pfp-top run`, run pfp-top as root, or set it to 0",
            ),
            "2" => (
                ", only kinds of waits",
                "kernel.yama.ptrace_scope is 2, so only root may read them: run pfp-top as root, or \
                 set it to 0",
            ),
            "3" => (
                ", only kinds of waits",
                "kernel.yama.ptrace_scope is 3, so nobody may read them before a restart with a \
                 lower value",
            ),
            _ => {
                ("", "the process belongs to another user or hides its memory: run pfp-top as root")
            }
        };
        format!("the system calls of [{}] cannot be read{known}: {why}", self.pid)
    }
}

/// The text of a file. Names in it may contain any bytes.
pub(super) fn text_of(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// Parses a `syscall` file: `running`, or `-1 STACK CODE`, or the number of the call, its six
/// arguments, and the same.
fn parse_call(text: &str) -> Option<Call> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next()?;
    if first == "running" {
        return Some(Call::Runs);
    }
    let number = first.parse::<i64>().ok()?;
    if number < 0 {
        return Some(Call::Outside);
    }
    let mut next = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = next()?;
    }
    Some(Call::In { number, arguments, stack: next()?, code: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_understood() {
        assert_eq!(parse_call("running\n"), Some(Call::Runs));
        assert_eq!(parse_call("-1 0x7ffe 0x7faf\n"), Some(Call::Outside));
        let line = "202 0x10 0x80 0x2 0x0 0x0 0x0 0x7ffe00 0x7faf\n";
        let arguments = [0x10, 0x80, 2, 0, 0, 0];
        let call = Call::In { number: 202, arguments, stack: 0x7ffe00, code: 0x7faf };
        assert_eq!(parse_call(line), Some(call));
        for wrong in ["", "x", "202", "202 0x1 0x2", "202 1 2 3 4 5 6 7"] {
            assert_eq!(parse_call(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_process_reads_itself() {
        let mut own = Process::of(std::process::id()).unwrap();
        assert!(own.threads().unwrap().contains(&own.pid));
        assert!(own.schedule(own.pid).is_some() && !own.name(own.pid).is_empty());
        let words = [1_u32, 2, 3];
        assert_eq!(own.words::<3>(words.as_ptr().addr() as u64), Some(words));
        assert_eq!(own.words::<3>(8), None);
        assert!(Process::of(u32::MAX).is_err());
    }
}

//! What the system refuses: a `/dev/shm` of one's own, and system calls that fail
//! because a tracer says so.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Tells a tracer where something begins or ends: a system call that nobody makes.
pub fn mark() {
    // SAFETY: an argument that the kernel refuses, without looking at memory.
    unsafe { libc::sched_get_priority_max(MARK) };
}

const MARK: libc::c_int = 7_777;

/// Gives the calling thread, and what it starts, a `/dev/shm` of its own: a tmpfs
/// with these options. Allocates nothing, so it may stand between fork and exec.
///
/// # Errors
///
/// What the system answered; most often that this takes more rights.
pub fn own_shm(flags: libc::c_ulong, options: &CStr) -> io::Result<()> {
    own_mounts()?;
    // SAFETY: a plain system call with constant strings.
    unsafe {
        check(libc::mount(
            c"tmpfs".as_ptr(),
            c"/dev/shm".as_ptr(),
            c"tmpfs".as_ptr(),
            flags,
            options.as_ptr().cast(),
        ))
    }
}

/// Has the calling thread, and what it starts, find files of its own under names of the
/// system's. Allocates nothing, as [`own_shm`].
///
/// # Errors
///
/// As [`own_shm`].
pub fn own_files<'a>(files: impl IntoIterator<Item = (&'a CStr, &'a CStr)>) -> io::Result<()> {
    own_mounts()?;
    for (own, name) in files {
        let (flags, none) = (libc::MS_BIND, ptr::null());
        // SAFETY: a plain system call with strings that live long enough.
        check(unsafe { libc::mount(own.as_ptr(), name.as_ptr(), none, flags, none.cast()) })?;
    }
    Ok(())
}

/// Gives the calling thread mounts of its own, which nobody else sees.
fn own_mounts() -> io::Result<()> {
    // SAFETY: plain system calls with constant strings.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        check(libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), private, ptr::null()))
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A control group of the kernel's, with a limit.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// Makes one of so many bytes, beside all others.
    ///
    /// # Errors
    ///
    /// What the system answered; most often that this takes more rights.
    pub fn new(limit: u64) -> io::Result<Self> {
        let limit = limit.to_string();
        Self::make("memory", ("memory.limit_in_bytes", &limit), ("memory.max", &limit))
    }

    /// One whose threads together have so many percent of a CPU.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn of_cpu(percent: u32) -> io::Result<Self> {
        let quota = (percent * 1_000).to_string();
        let of_100_ms = format!("{quota} 100000");
        Self::make("cpu", ("cpu.cfs_quota_us", &quota), ("cpu.max", &of_100_ms))
    }

    /// With a limit in a file, as version 1 has it in the folder of a controller, and version 2.
    fn make(controller: &str, first: (&str, &str), second: (&str, &str)) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("pfp-test-{}-{number}", std::process::id());
        let all = Path::new("/sys/fs/cgroup");
        let old = all.join(controller);
        let (root, (file, limit)) = match old.join("cgroup.procs").exists() {
            true => (&*old, first),
            false => (all, second),
        };
        let group = Self { path: root.join(name) };
        fs::create_dir(&group.path)?;
        fs::write(group.path.join(file), limit)?;
        Ok(group)
    }

    /// Has a program run in it.
    pub fn prepare(&self, command: &mut Command) {
        let procs = self.path.join("cgroup.procs").into_os_string().into_vec();
        let procs = CString::new(procs).expect("there is no zero in it");
        let join = move || {
            // SAFETY: system calls with texts that outlive them; "0" is the caller.
            let written = unsafe {
                let file = libc::open(procs.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                libc::write(file, c"0".as_ptr().cast(), 1)
            };
            if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: only system calls between fork and exec.
        unsafe { command.pre_exec(join) };
    }

    /// The most memory that was ever charged to it, in bytes; 0 where the kernel does not tell.
    #[must_use]
    pub fn most(&self) -> u64 {
        ["memory.max_usage_in_bytes", "memory.peak"]
            .iter()
            .find_map(|file| fs::read_to_string(self.path.join(file)).ok()?.trim().parse().ok())
            .unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever was in it is still leaving, for a moment.
        for _ in 0..1_000 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// Does something on a thread with a `/dev/shm` of its own, so that whatever is left
/// in it is known to be that thread's.
///
/// # Errors
///
/// As [`own_shm`].
///
/// # Panics
///
/// As the work does.
pub fn with_own_shm<R: Send>(options: &str, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    let options = CString::new(options)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || own_shm(0, &options).map(|()| work()));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A system call: its name, and which one of that name it is, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// As strace writes it.
    pub name: String,
    /// As strace counts it.
    pub number: u32,
    /// The whole line of the trace.
    pub line: String,
}

/// What strace wrote of one thread: the calls between its [marks](mark), as many
/// lists as there are marks, and the last one from the last mark to the end.
///
/// # Panics
///
/// If there are no marks.
#[must_use]
pub fn calls(trace: &Path) -> Vec<Vec<Call>> {
    let text = fs::read_to_string(trace).expect("strace has written it");
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut parts: Vec<Vec<Call>> = Vec::new();
    for line in text.lines() {
        // With -f, each line starts with the thread's id.
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let Some((name, arguments)) = line.split_once('(') else { continue };
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let number = counts.entry(name.to_owned()).or_default();
        *number += 1;
        if name == "sched_get_priority_max" && arguments.contains(&format!("{MARK:#x}")) {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(Call { name: name.to_owned(), number: *number, line: line.to_owned() });
        }
    }
    assert!(!parts.is_empty(), "no mark in {text}");
    parts
}

/// A command that runs another one under strace, with these options. Its own
/// environment stays as it is.
#[must_use]
pub fn traced(command: &Command, options: &[&str], trace: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-f", "-o"]).arg(trace).args(options).arg("--");
    strace.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    strace
}

//! Failures of the system: a private `/dev/shm`, and system calls that a tracer makes fail.

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

/// Marks a position in the trace by a system call that no other code makes.
pub fn mark() {
    // SAFETY: the kernel refuses the argument, and the call takes no pointers.
    unsafe { libc::sched_get_priority_max(MARK) };
}

const MARK: libc::c_int = 7_777;

/// Mounts a private `/dev/shm` for the calling thread and the processes that it starts: a tmpfs
/// with these options. It allocates no memory, so it may run between fork and exec.
///
/// # Errors
///
/// Returns the system's error, most often a lack of rights.
pub fn own_shm(flags: libc::c_ulong, options: &CStr) -> io::Result<()> {
    own_mounts()?;
    // SAFETY: a plain system call with constant NUL-terminated strings.
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

/// Mounts private files over the system's for the calling thread and the processes that it starts.
/// Like [`own_shm`] it allocates no memory.
///
/// # Errors
///
/// Returns the same errors as [`own_shm`].
pub fn own_files<'a>(files: impl IntoIterator<Item = (&'a CStr, &'a CStr)>) -> io::Result<()> {
    own_mounts()?;
    for (own, name) in files {
        let (flags, none) = (libc::MS_BIND, ptr::null());
        // SAFETY: a plain system call with NUL-terminated strings that outlive it.
        check(unsafe { libc::mount(own.as_ptr(), name.as_ptr(), none, flags, none.cast()) })?;
    }
    Ok(())
}

/// Gives the calling thread a private mount namespace.
fn own_mounts() -> io::Result<()> {
    // SAFETY: plain system calls with constant NUL-terminated strings.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        check(libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), private, ptr::null()))
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A control group with a limit.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// Creates a top-level group with a memory limit in bytes.
    ///
    /// # Errors
    ///
    /// Returns the system's error, most often a lack of rights.
    pub fn new(limit: u64) -> io::Result<Self> {
        let limit = limit.to_string();
        Self::make("memory", ("memory.limit_in_bytes", &limit), ("memory.max", &limit))
    }

    /// Creates a group whose threads together may use `percent` per cent of a CPU.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::new`].
    pub fn of_cpu(percent: u32) -> io::Result<Self> {
        let quota = (percent * 1_000).to_string();
        let of_100_ms = format!("{quota} 100000");
        Self::make("cpu", ("cpu.cfs_quota_us", &quota), ("cpu.max", &of_100_ms))
    }

    /// Creates a group with a limit in a file. `first` is the file for version 1, which has a
    /// folder for each controller, and `second` the file for version 2.
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

    /// Makes a program run in the group.
    pub fn prepare(&self, command: &mut Command) {
        let procs = self.path.join("cgroup.procs").into_os_string().into_vec();
        let procs = CString::new(procs).expect("there is no zero in it");
        let join = move || {
            // SAFETY: the system calls take NUL-terminated texts that outlive them; "0" means the
            // calling process.
            let written = unsafe {
                let file = libc::open(procs.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                libc::write(file, c"0".as_ptr().cast(), 1)
            };
            if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: `join` makes only system calls, so it may run between fork and exec.
        unsafe { command.pre_exec(join) };
    }

    /// The group's peak memory in bytes; 0 if the kernel does not report it.
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
        // The group's processes need a moment to leave it.
        for _ in 0..1_000 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// Runs `work` on a thread with a private `/dev/shm`, so that everything left in it comes from that
/// thread.
///
/// # Errors
///
/// Returns the errors of [`own_shm`].
///
/// # Panics
///
/// Panics if the work does.
pub fn with_own_shm<R: Send>(options: &str, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    let options = CString::new(options)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || own_shm(0, &options).map(|()| work()));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A system call: its name, and its number among the calls of that name, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// The name as strace prints it.
    pub name: String,
    /// The number as strace counts it.
    pub number: u32,
    /// The whole line of the trace.
    pub line: String,
}

/// The calls of one thread in a trace by strace: for each [`mark`], a list of the calls from
/// there to the next mark or to the end.
///
/// # Panics
///
/// Panics if there are no marks.
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

/// Wraps a command in strace with these options. The command's own environment does not change.
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

//! Reads the kernel's figures, against which tests check pfp's, and places threads on CPUs.

use std::fs;
use std::mem;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::stolen;

/// CPU time of the calling thread.
#[must_use]
pub fn thread_cpu() -> Duration {
    now(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of a process, all its threads together; `None` if there is no such process.
#[must_use]
pub fn process_cpu(pid: u32) -> Option<Duration> {
    let mut clock = 0;
    // SAFETY: `clock` is valid for writes.
    let result = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) };
    (result == 0).then(|| now(clock))
}

/// CPU time of a process and of its children that it has waited for, in steps of the kernel's tick.
#[must_use]
pub fn family_cpu(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The field after the name, which may contain blanks, is field 3. Fields 14 to 17 are the user
    // and system time of the process and of its children.
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = times.filter_map(|time| time.parse::<u64>().ok()).sum();
    // SAFETY: takes a plain number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    Some(Duration::from_secs_f64(ticks as f64 / per_second))
}

/// A wall clock that is neither set nor slewed.
#[must_use]
pub fn wall() -> Duration {
    now(libc::CLOCK_MONOTONIC_RAW)
}

fn now(clock: libc::clockid_t) -> Duration {
    // SAFETY: a timespec holds plain numbers, for which zero is valid.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: `time` is valid for writes.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Kernel id of the calling thread.
#[must_use]
pub fn tid() -> u32 {
    // SAFETY: the call takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// The CPUs on which the calling thread may run.
#[must_use]
pub fn cpus() -> Vec<usize> {
    // SAFETY: a cpu_set_t holds plain bits; all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is valid for writes of the given size.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(result, 0, "a thread can always ask where it may run");
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: `cpu` is below CPU_SETSIZE, the number of bits in the set.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// Pins the calling thread, and the threads that it starts, to one CPU.
pub fn pin(cpu: usize) {
    // SAFETY: a cpu_set_t holds plain bits; all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `cpu` came from `cpus`, so it is within the set; the set is valid for reads of the
    // given size.
    let result = unsafe {
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(result, 0, "a thread may be kept on a CPU that it may run on");
}

/// Computes until the calling thread has used this much CPU time; returns the exact CPU time.
/// Stolen time in between is recorded.
pub fn burn(time: Duration) -> Duration {
    let start = thread_cpu();
    let end = start + time;
    stolen::counted(|| {
        while thread_cpu() < end {
            let mut chain = std::hint::black_box(1u64);
            for _ in 0..1_000 {
                chain ^= chain << 13;
                chain ^= chain >> 7;
                chain ^= chain << 17;
            }
            std::hint::black_box(chain);
        }
    });
    thread_cpu() - start
}

/// Number of threads of a process.
#[must_use]
pub fn thread_count(pid: u32) -> usize {
    entries(pid, "task").len()
}

/// The open descriptors of a process, each with its number and target.
#[must_use]
pub fn descriptors(pid: u32) -> Vec<String> {
    let mut all: Vec<String> = entries(pid, "fd")
        .into_iter()
        .filter_map(|entry| {
            let number = entry.file_name()?.to_str()?.to_owned();
            // The descriptor of the listing itself is closed by now.
            Some(format!("{number} {}", fs::read_link(&entry).ok()?.display()))
        })
        .collect();
    all.sort_unstable();
    all
}

fn entries(pid: u32, what: &str) -> Vec<std::path::PathBuf> {
    fs::read_dir(format!("/proc/{pid}/{what}"))
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default()
}

/// Bytes of resident memory of a process; shared pages count in full.
#[must_use]
pub fn resident(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("Linux tells it of a process of one's own") * 1024
}

/// Number of memory mappings of a process.
#[must_use]
pub fn mapping_count(pid: u32) -> usize {
    fs::read_to_string(format!("/proc/{pid}/maps")).map_or(0, |maps| maps.lines().count())
}

/// Sends a signal to a process that the test has started, directly or through another one.
pub fn signal(pid: u32, number: libc::c_int) {
    // SAFETY: the call takes no pointers.
    unsafe { libc::kill(pid as libc::pid_t, number) };
}

/// Restores the default actions of the terminal's signals in the program that `command` starts.
/// `nohup`, and a shell that starts the tests in the background, make all their children ignore
/// these signals.
pub fn hear_terminal(command: &mut Command) {
    // SAFETY: signal may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for number in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                libc::signal(number, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// A timer that periodically sends a signal to the calling thread only. Dropping the value stops
/// the timer.
#[derive(Debug)]
pub struct Ticks(libc::timer_t);

impl Ticks {
    /// Sends `signal` once in each period of `each`.
    ///
    /// # Panics
    ///
    /// Panics if the timer cannot be created.
    #[must_use]
    pub fn of_this_thread(signal: libc::c_int, each: Duration) -> Self {
        // SAFETY: a sigevent holds plain numbers and a pointer, for which zero is valid.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = tid() as libc::pid_t;
        let mut timer = std::ptr::null_mut();
        let each = libc::timespec {
            tv_sec: each.as_secs() as libc::time_t,
            tv_nsec: each.subsec_nanos().into(),
        };
        let times = libc::itimerspec { it_interval: each, it_value: each };
        // SAFETY: `event` and the times are valid for reads, the timer for writes.
        let results = unsafe {
            [
                libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer),
                libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()),
            ]
        };
        assert_eq!(results, [0, 0], "{}", std::io::Error::last_os_error());
        Self(timer)
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        // SAFETY: `of_this_thread` created the timer, and it is deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Whether a process exists and is not a zombie.
#[must_use]
pub fn runs(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

/// Whether a process with this id exists, including zombies.
#[must_use]
pub fn exists(pid: u32) -> bool {
    // SAFETY: signal 0 only checks that the process exists; the call takes no pointers.
    unsafe { libc::kill(pid as libc::pid_t, 0) == 0 }
}

/// The calling thread's `errno`.
#[must_use]
pub fn errno() -> i32 {
    // SAFETY: the pointer is valid as long as the thread runs.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(errno: i32) {
    // SAFETY: the pointer is valid as long as the thread runs, and only this thread uses it.
    unsafe { *libc::__errno_location() = errno };
}

/// Copies a program that is to be started. A separate process writes the copy: otherwise a process
/// that another thread forks could inherit a writable descriptor of the file, and exec would fail.
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    let copied = Command::new("cp").arg("-p").args([from.as_ref(), to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "there is room for {}", to.display());
}

/// Whether this kernel reports how a reaped process ended: Linux 6.15 or newer.
#[must_use]
pub fn tells_ends() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|word| word.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}

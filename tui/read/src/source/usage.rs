//! The kernel's figures of a running process: CPU time, memory, threads.

use std::fs;

use super::namespaces::words_of;
use crate::snapshot::Usage;

/// The usage of a process. `None` if the kernel does not report it.
pub(super) fn of(pid: u32) -> Option<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| words_of(&status, name)?.next()?.parse::<u64>().ok();
    Some(Usage {
        cpu_ns: cpu_ns(pid)?,
        memory_bytes: field("VmRSS:")?.saturating_mul(1024),
        threads: u32::try_from(field("Threads:")?).ok()?,
        cpus: cpus(pid)?,
    })
}

/// CPU time of all threads of a process, past and present, nanoseconds.
fn cpu_ns(pid: u32) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: `clock` is a live integer of our own that the call may write.
    let found = unsafe { libc::clock_getcpuclockid(pid.try_into().ok()?, &raw mut clock) };
    if found == 0 { time_of(clock) } else { None }
}

/// The time of a clock, nanoseconds.
pub(super) fn time_of(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live `timespec` of our own, valid for the kernel's write.
    let read = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (read == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Number of CPUs that a process may run on.
fn cpus(pid: u32) -> Option<u32> {
    // SAFETY: a `cpu_set_t` is plain bits; all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let pid = pid.try_into().ok()?;
    // SAFETY: `set` is valid for writes of the size given.
    let asked = unsafe { libc::sched_getaffinity(pid, size_of::<libc::cpu_set_t>(), &raw mut set) };
    // SAFETY: `CPU_COUNT` only reads `set`, which is initialized.
    let count = unsafe { libc::CPU_COUNT(&set) };
    (asked == 0 && count > 0).then_some(count as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_known_for_running_processes_only() {
        let before = of(std::process::id()).unwrap();
        let mut spent = 0_u64;
        let now = loop {
            spent = (0..1_000_000_u64).fold(spent, |sum, n| std::hint::black_box(sum ^ n));
            let now = of(std::process::id()).unwrap();
            if now.cpu_ns > before.cpu_ns {
                break now;
            }
        };
        assert!(now.memory_bytes > 1 << 16 && now.threads >= 1, "{now:?}");
        let all = std::thread::available_parallelism().unwrap().get() as u32;
        assert!(now.cpus >= 1 && now.cpus >= all, "{now:?}");
        assert_eq!(of(u32::MAX), None);
    }
}

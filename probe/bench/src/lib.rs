//! Compares cases. Each case runs in its own process.
//!
//! A program lists its cases and calls [`serve_if_asked`] first. Then it starts itself once per
//! case ([`Worker::spawn`]) and runs all cases in turn for many rounds ([`interleave`]). So drift
//! of the machine's speed affects all cases alike, and a case does not affect the figures of
//! another through what it leaves behind (memory, threads, branch predictor).
//!
//! Parent and worker exchange lines. The parent writes `CALLS THREADS`. The worker runs one batch
//! of `CALLS` calls on each of `THREADS` threads and answers `NANOSECONDS CPU_NANOSECONDS
//! RSS_BYTES`.

use std::fmt;

mod parent;
mod worker;

pub use self::parent::{Sample, Worker, interleave};
pub use self::worker::serve_if_asked;

/// A case to be measured. [`case!`] creates one.
#[derive(Clone, Copy)]
pub struct Case {
    /// Name of the case, in tables and on the worker's command line.
    pub name: &'static str,
    /// Number of regions in a call.
    pub regions: u32,
    /// Runs once on each thread before its first batch. At that time, this thread and threads that
    /// it starts are not yet bound to a CPU.
    pub prepare: fn(),
    /// Makes the given number of calls in a loop.
    pub batch: fn(u64),
}

impl fmt::Debug for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Creates a [`Case`] from a name, the number of regions in a call, optionally a function that
/// prepares a thread, and an expression, which is the call. The expression is inlined into the
/// loop, so that no function call is measured.
///
/// ```
/// let case = pfp_bench::case!("nothing", 1, std::hint::black_box(()));
/// (case.batch)(10);
/// ```
#[macro_export]
macro_rules! case {
    ($name:expr, $regions:expr, $call:expr) => {
        $crate::case!($name, $regions, || (), $call)
    };
    ($name:expr, $regions:expr, $prepare:expr, $call:expr) => {
        $crate::Case {
            name: $name,
            regions: $regions,
            prepare: $prepare,
            batch: |calls| {
                for _ in 0..calls {
                    $call;
                }
            },
        }
    };
}

/// The median; of an even number of values, the upper one in the middle. NaN without values.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Description of the machine, to print with a table.
#[must_use]
pub fn machine(ticks_per_second: f64) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name| {
        info.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then_some(value.trim())
        })
    };
    let name = field("model name").unwrap_or("unknown processor");
    let virtually = match field("flags") {
        Some(flags) if flags.split(' ').any(|flag| flag == "hypervisor") => " (virtual machine)",
        _ => "",
    };
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{name}{virtually}, {cpus} CPUs, time-stamp counter {:.2} GHz", ticks_per_second / 1e9)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn median_is_the_value_in_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 3.0);
        assert!(median(&mut []).is_nan());
    }
}

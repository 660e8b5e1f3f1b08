//! Cases measured beside each other, each in a process of its own.
//!
//! A program lists its cases and first of all calls [`serve_if_asked`]. Then it
//! starts itself once per case ([`Worker::spawn`]) and goes round all of them for
//! many rounds ([`interleave`]): a machine whose speed drifts does so for every
//! case, and nothing that one case leaves behind (memory, threads, a branch
//! predictor full of itself) is in the figures of another.
//!
//! Parent and worker talk in lines. The parent writes `CALLS THREADS`; the worker
//! runs one batch of that many calls on each of that many threads and answers
//! `NANOSECONDS CPU_NANOSECONDS RSS_BYTES`.

use std::fmt;

mod parent;
mod worker;

pub use self::parent::{Sample, Worker, interleave};
pub use self::worker::serve_if_asked;

/// What is measured. [`case!`] makes one.
#[derive(Clone, Copy)]
pub struct Case {
    /// What the case is called, in tables and on the worker's command line.
    pub name: &'static str,
    /// How many regions one call has.
    pub regions: u32,
    /// Runs once on each thread that will run batches, before the first. The
    /// thread is not yet bound to a CPU, nor are those that this starts.
    pub prepare: fn(),
    /// Makes so many calls, with nothing between them.
    pub batch: fn(u64),
}

impl fmt::Debug for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A [`Case`] of a name, a number of regions in a call, optionally a function
/// that prepares a thread, and an expression that is the call. The loop is
/// inlined with the expression, so that no call of a function is measured.
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

/// The value in the middle; of an even number, the upper of the two. Not a
/// number if there are none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The machine, in the words that belong under a table.
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

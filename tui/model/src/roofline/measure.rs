//! Measures the ceilings. Every loop runs several times, and the best run counts, since everything
//! else on the machine only slows it down.

use std::sync::Barrier;
use std::time::{Duration, Instant, SystemTime};

use super::kernels::{Arithmetic, Triad};
use super::machine::{self, Cache};
use super::{Bandwidth, Ceilings, Flops, Roof};
use pfp_read::local_time::unix_ns;

/// Number of runs of each loop.
const RUNS: usize = 5;
/// Approximate time of one run.
const LONG: Duration = Duration::from_millis(40);
/// Maximum share of the free memory that is used, as a divisor.
const SHARE_OF_MEMORY: u64 = 4;
/// The most memory that is used, bytes.
const MAX_MEMORY: u64 = 1 << 30;

/// Measures this machine's limits, for one thread and for `threads` at once. This keeps the machine
/// busy for a few seconds. Calls `on_start` with the name of each measurement before it starts.
///
/// The arrays for memory are four times as large as the last cache, and at least 64 MiB, but at
/// most a quarter of the free memory and 1 GiB.
pub fn measure(threads: usize, mut on_start: impl FnMut(&str)) -> Ceilings {
    let taken_unix_ns = unix_ns(SystemTime::now());
    let alone = roof(1, &mut on_start);
    let together = if threads > 1 { roof(threads, &mut on_start) } else { alone.clone() };
    Ceilings { cpu: machine::cpu(), taken_unix_ns, alone, together }
}

fn roof(threads: usize, on_start: &mut impl FnMut(&str)) -> Roof {
    let caches = machine::caches();
    let mut roof = Roof { threads, ..Roof::default() };
    for (level, working_set) in working_sets(&caches, threads, machine::available()) {
        on_start(&format!("{level}, {threads} threads"));
        let bytes_per_second = best(threads, || {
            let mut triad = Triad::new(working_set);
            move |rounds| triad.run(rounds)
        });
        roof.bandwidths.push(Bandwidth { level, working_set, bytes_per_second });
    }
    for arithmetic in Arithmetic::all() {
        on_start(&format!("{}, {threads} threads", arithmetic.kind));
        let per_second = best(threads, || move |rounds| arithmetic.run(rounds));
        roof.flops.push(Flops { kind: arithmetic.kind.to_owned(), per_second });
    }
    roof
}

/// Bytes that each thread uses to measure each cache and the memory. The data of all threads that
/// share a cache fits into that cache.
fn working_sets(caches: &[Cache], threads: usize, available: u64) -> Vec<(String, u64)> {
    let last = caches.last().map_or(8 << 20, |cache| cache.size);
    let of_a_thread = |cache: &Cache| cache.size / 2 / cache.sharers.clamp(1, threads) as u64;
    let most = (available / SHARE_OF_MEMORY).min(MAX_MEMORY);
    let memory = (4 * last).max(64 << 20).min(most) / threads as u64;
    let levels = caches.iter().map(|cache| (format!("L{}", cache.level), of_a_thread(cache)));
    levels.chain([("memory".to_owned(), memory)]).collect()
}

/// The best rate of `threads` threads together, each with its own loop.
fn best<W: FnMut(u64) -> f64>(threads: usize, work: impl Fn() -> W + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let spans: Vec<Vec<(Instant, Instant, f64)>> = std::thread::scope(|scope| {
        let one = || {
            let mut work = work();
            let rounds = enough(&mut work);
            let mut spans = Vec::with_capacity(RUNS);
            for _ in 0..RUNS {
                barrier.wait();
                let start = Instant::now();
                let done = work(rounds);
                spans.push((start, Instant::now(), done));
            }
            spans
        };
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        let mut spans = vec![one()];
        spans.extend(others.into_iter().filter_map(|other| other.join().ok()));
        spans
    });
    (0..RUNS).map(|attempt| rate(spans.iter().map(|spans| spans[attempt]))).fold(0.0, f64::max)
}

/// The rate over the time from the first start to the last end.
fn rate(spans: impl Iterator<Item = (Instant, Instant, f64)> + Clone) -> f64 {
    let start = spans.clone().map(|(start, ..)| start).min();
    let end = spans.clone().map(|(_, end, _)| end).max();
    let done: f64 = spans.map(|(.., done)| done).sum();
    match (start, end) {
        (Some(start), Some(end)) if end > start => done / (end - start).as_secs_f64(),
        _ => 0.0,
    }
}

/// The number of rounds that takes about as long as one run should.
fn enough(work: &mut impl FnMut(u64) -> f64) -> u64 {
    let mut rounds = 1;
    loop {
        let start = Instant::now();
        work(rounds);
        let took = start.elapsed();
        if took >= LONG / 4 || rounds >= 1 << 40 {
            let times = LONG.as_secs_f64() / took.as_secs_f64().max(1e-9);
            return ((rounds as f64 * times) as u64).max(1);
        }
        rounds *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_sets_fit_their_caches_and_the_memory_there_is() {
        let cache = |level, size, sharers| Cache { level, size, sharers };
        let caches = [cache(1, 32 << 10, 2), cache(3, 16 << 20, 8)];
        let of = |threads, available| working_sets(&caches, threads, available);
        let alone = of(1, 64 << 30);
        assert_eq!(alone[0], ("L1".to_owned(), 16 << 10));
        assert_eq!(alone[1], ("L3".to_owned(), 8 << 20));
        assert_eq!(alone[2], ("memory".to_owned(), 64 << 20));
        let four = of(4, 64 << 30);
        assert_eq!((four[0].1, four[1].1, four[2].1), (8 << 10, 2 << 20, 16 << 20));
        assert_eq!(of(1, 64 << 20)[2].1, 16 << 20, "a quarter of what is free");
    }

    /// The work of two threads counts from the first begin to the last end.
    #[test]
    fn rates_are_of_the_whole_span() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let spans = [(at(0), at(600), 3.0), (at(200), at(1000), 5.0)];
        assert!((rate(spans.into_iter()) - 8.0).abs() < 1e-9);
    }

    /// Properties that hold on any machine, however busy.
    #[test]
    fn every_ceiling_is_measured() {
        let mut heard = 0;
        let ceilings = measure(1, |_| heard += 1);
        let roof = &ceilings.alone;
        assert_eq!(heard, roof.bandwidths.len() + roof.flops.len());
        assert_eq!(ceilings.together, ceilings.alone);
        assert!(roof.memory() > 0.0 && roof.peak() > 0.0 && !ceilings.cpu.is_empty());
        assert_eq!(roof.flops.len(), Arithmetic::all().len());
    }

    /// CPU time of the calling thread, in seconds.
    fn cpu_time() -> f64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a live `timespec` of our own, valid for the kernel's write.
        let refused = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        assert_eq!(refused, 0, "a thread can always ask for its time");
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }

    /// Measured by the thread's CPU time, which other programs on a busy machine do not change.
    #[test]
    fn wide_registers_beat_narrow_ones() {
        let all = Arithmetic::all();
        let [scalar, .., wide] = all.as_slice() else { return };
        let mut best = [0.0f64; 2];
        for _ in 0..50 {
            for (best, arithmetic) in best.iter_mut().zip([scalar, wide]) {
                let start = cpu_time();
                let done = arithmetic.run(1 << 16);
                *best = best.max(done / (cpu_time() - start));
            }
        }
        assert!(best[1] > 1.2 * best[0], "{best:?}");
    }
}

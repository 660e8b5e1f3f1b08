//! The program that `pfp-top demo` watches: real work on a real text, in a form that shows what pfp
//! measures.
//!
//! Each module shows one use of the library, so reading them is also the shortest way to learn it:
//!
//! | threads | what they do | what to watch |
//! |---|---|---|
//! | `worker 1`... | read chapters of a book: words, index, compression ([`mod@worker`]) | nested regions, recursion, pre-emption, a point that is off at first |
//! | `sink` | takes the results from a pipe ([`mod@sink`]) | blocking outside the CPU, a latched region |
//! | `housekeeper` | wakes ten times a second ([`mod@housekeeper`]) | sleeping, an exponential average, a loop that starts with `end` |
//! | `errand` | lives for a moment, five times a second | threads that come and go |
//! | `search` | runs async functions ([`mod@search`]) | a region measured over all its polls |
//!
//! The work checks itself: [`Summary::mismatches`] counts wrong results.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the table above leads the reader of the source"
)]

mod corpus;
mod cpus;
mod executor;
mod housekeeper;
mod pack;
mod search;
mod sink;
mod words;
mod worker;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

/// The results of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Chapters that the workers read.
    pub chapters: u64,
    /// Words in the chapters that the workers read.
    pub words: u64,
    /// Whole books put together from the workers' chapters.
    pub editions: u64,
    /// Searches through the whole book.
    pub searches: u64,
    /// Short-lived threads.
    pub errands: u64,
    /// The longest word that an errand returned.
    pub longest_word: &'static str,
    /// Maximum number of resident pages that was seen.
    pub peak_resident_pages: u64,
    /// Wrong results. Anything but zero is a bug.
    pub mismatches: u64,
}

/// Maximum number of CPUs that the demo loads, so that it does not fill a large machine.
const MOST_CPUS: usize = 4;

/// Number of workers beyond the number of CPUs, so that the kernel has threads to pre-empt.
const SURPLUS_WORKERS: usize = 2;

/// Rounds of calibration: a few milliseconds, enough for a steady figure.
const CALIBRATION_LOOPS: u32 = 10_000;

/// Runs the demo until standard input ends. A viewer holds the other end of the pipe, so the demo
/// ends with the viewer, however the viewer dies.
///
/// Confines the calling thread, and with it all threads of the demo, to at most four CPUs.
///
/// # Errors
///
/// When a pipe or a thread cannot be created.
pub fn run_until_input_ends() -> io::Result<Summary> {
    static STOP: AtomicBool = AtomicBool::new(false);
    thread::spawn(|| {
        // The viewer never sends anything; an error ends the wait as well.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        STOP.store(true, Ordering::Relaxed);
    });
    run(&STOP)
}

/// Measures one region and waits until standard input ends. Without a region, a program cannot be
/// watched.
pub fn measure_once() {
    name_and_calibrate();
    {
        pfp::scope!("trial");
    }
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
}

fn name_and_calibrate() {
    pfp::set_program_name("pfp-demo");
    pfp::calibrate(CALIBRATION_LOOPS);
}

/// Whether the demo continues. Every thread polls this before its next piece of work, so no thread
/// needs a message to end.
fn goes_on(stop: &AtomicBool) -> bool {
    // Relaxed: the flag publishes no other data.
    !stop.load(Ordering::Relaxed)
}

fn run(stop: &AtomicBool) -> io::Result<Summary> {
    name_and_calibrate();
    words::quieten();

    let queue = worker::Queue::new();
    let workers = cpus::confine_to(MOST_CPUS) + SURPLUS_WORKERS;
    let (pipe_out, pipe_in) = io::pipe()?;

    thread::scope(|scope| {
        let sink = spawn(scope, "sink", || sink::run(pipe_out))?;
        let housekeeper = spawn(scope, "housekeeper", || housekeeper::run(stop))?;
        let search = spawn(scope, "search", || search::run(stop))?;
        for number in 1..=workers {
            let pipe_in = pipe_in.try_clone()?;
            let queue = &queue;
            spawn(scope, &format!("worker {number}"), move || worker::run(stop, queue, pipe_in))?;
        }
        // Now only the workers hold write ends, so the sink ends when the last worker closes its
        // own.
        drop(pipe_in);

        let (sink, housekeeper, search) = (joined(sink), joined(housekeeper)?, joined(search));
        Ok(Summary {
            chapters: sink.chapters,
            words: sink.words,
            editions: sink.editions,
            searches: search.searches,
            errands: housekeeper.errands,
            longest_word: housekeeper.longest_word,
            peak_resident_pages: housekeeper.peak_resident_pages,
            mismatches: sink.mismatches + search.mismatches,
        })
    })
}

/// Starts a thread with a name. The viewer shows the name, too.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let name = name.to_owned();
    thread::Builder::new().name(name.clone()).spawn_scoped(scope, move || {
        pfp::register_thread(&name);
        body()
    })
}

/// The result of a thread. If that thread panicked, the panic continues in this one.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Longer than any run here takes, and short enough to end a hung test.
    const TIME_LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn a_run_stops_on_request_without_mismatches() {
        let stop = AtomicBool::new(false);
        let (summary, stopped) = thread::scope(|scope| {
            let demo = scope.spawn(|| run(&stop));
            thread::sleep(Duration::from_millis(600));
            let stopped = Instant::now();
            stop.store(true, Ordering::Relaxed);
            (demo.join().unwrap().unwrap(), stopped)
        });
        assert!(stopped.elapsed() < TIME_LIMIT);
        assert_eq!(summary.mismatches, 0, "{summary:?}");
        assert!(summary.chapters > 0 && summary.words > summary.chapters, "{summary:?}");
        assert!(summary.editions > 0 && summary.errands > 0 && summary.searches > 0, "{summary:?}");
        assert!(summary.peak_resident_pages > 0, "{summary:?}");
    }
}

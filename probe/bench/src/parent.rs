//! The parent, which starts a worker per case and runs them in turn.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A worker's answer for a batch.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Nanoseconds per region and thread. 0 for a batch without calls.
    pub ns: f64,
    /// Nanoseconds of CPU time per region and thread. Unlike `ns`, this does not include waits for
    /// a CPU if there are more threads than CPUs.
    pub cpu_ns: f64,
    /// Resident memory of the worker after the batch, in bytes.
    pub rss: u64,
}

/// The process of a case, which ends when this is dropped.
#[derive(Debug)]
pub struct Worker {
    name: String,
    child: Child,
    /// `None` only during the drop.
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts this program again, for the case with this name.
    ///
    /// # Errors
    ///
    /// Fails if the process cannot be started.
    pub fn spawn(name: &str) -> io::Result<Self> {
        Self::spawn_from(std::env::current_exe()?, name)
    }

    /// Starts another program that calls [`serve_if_asked`](crate::serve_if_asked).
    ///
    /// # Errors
    ///
    /// Fails if the process cannot be started.
    pub fn spawn_from(program: impl AsRef<OsStr>, name: &str) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args(["--case", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for");
        };
        let answers = BufReader::new(answers);
        Ok(Self { name: name.to_owned(), child, asks: Some(asks), answers })
    }

    /// The case's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Id of the worker's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a batch of `calls` calls on each of `threads` threads simultaneously. An untimed call
    /// precedes each batch. With 0 calls, only prepares the threads.
    ///
    /// # Errors
    ///
    /// Fails if the worker has ended, or if its answer is invalid.
    pub fn run(&mut self, calls: u64, threads: usize) -> io::Result<Sample> {
        let ended = |_| io::Error::other(format!("the worker of {:?} has ended", self.name));
        let mut answer = String::new();
        self.asks
            .iter_mut()
            .try_for_each(|asks| writeln!(asks, "{calls} {threads}"))
            .map_err(ended)?;
        self.answers.read_line(&mut answer).map_err(ended)?;
        parse(&answer).ok_or_else(|| {
            io::Error::other(format!("the worker of {:?} answers {answer:?}", self.name))
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.asks.take());
        // The worker has nothing to save, so its exit status does not matter.
        let _ = self.child.wait();
    }
}

fn parse(answer: &str) -> Option<Sample> {
    let mut words = answer.split_whitespace();
    let mut word = || words.next();
    let (ns, cpu_ns, rss) = (word()?, word()?, word()?);
    Some(Sample { ns: ns.parse().ok()?, cpu_ns: cpu_ns.parse().ok()?, rss: rss.parse().ok()? })
}

/// Runs `turn` for each worker in each round. Returns the results of each worker, in the workers'
/// order.
///
/// The order differs from round to round. A worker with background threads may still be busy after
/// its answer, and must not always disturb the same other worker.
///
/// # Errors
///
/// Returns the first error of `turn`.
pub fn interleave<T>(
    workers: &mut [Worker],
    rounds: usize,
    mut turn: impl FnMut(&mut Worker) -> io::Result<T>,
) -> io::Result<Vec<Vec<T>>> {
    let mut results: Vec<Vec<T>> = workers.iter().map(|_| Vec::with_capacity(rounds)).collect();
    let mut order: Vec<usize> = (0..workers.len()).collect();
    let mut random = 1;
    for _ in 0..rounds {
        shuffle(&mut order, &mut random);
        for &worker in &order {
            results[worker].push(turn(&mut workers[worker])?);
        }
    }
    Ok(results)
}

/// Fisher-Yates shuffle with Knuth's generator, so that all runs use the same orders.
fn shuffle(order: &mut [usize], random: &mut u64) {
    for last in (1..order.len()).rev() {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, (*random >> 33) as usize % (last + 1));
    }
}

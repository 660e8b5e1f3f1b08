//! The side that asks: starts a worker per case, and goes round them.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What a worker answers to a batch.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Nanoseconds per region, per thread. 0 for a batch of no calls.
    pub ns: f64,
    /// The same in CPU time of the threads: without what they wait for a CPU, where
    /// there are more threads than CPUs.
    pub cpu_ns: f64,
    /// Bytes resident in the worker after the batch.
    pub rss: u64,
}

/// The process of one case. It ends when this is dropped.
#[derive(Debug)]
pub struct Worker {
    name: String,
    child: Child,
    /// None only while it is dropped.
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts this program again, for the case of that name.
    ///
    /// # Errors
    ///
    /// If no process can be started.
    pub fn spawn(name: &str) -> io::Result<Self> {
        Self::spawn_from(std::env::current_exe()?, name)
    }

    /// The same for another program that calls
    /// [`serve_if_asked`](crate::serve_if_asked).
    ///
    /// # Errors
    ///
    /// If no process can be started.
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

    /// The number of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One batch of that many calls on each of that many threads, all at once, and
    /// before it one call that is not timed. No calls only prepare the threads.
    ///
    /// # Errors
    ///
    /// If the worker has ended, or answers something else.
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
        // It has nothing to save; how it ended is not of interest.
        let _ = self.child.wait();
    }
}

fn parse(answer: &str) -> Option<Sample> {
    let mut words = answer.split_whitespace();
    let mut word = || words.next();
    let (ns, cpu_ns, rss) = (word()?, word()?, word()?);
    Some(Sample { ns: ns.parse().ok()?, cpu_ns: cpu_ns.parse().ok()?, rss: rss.parse().ok()? })
}

/// Gives each worker its turn in each of so many rounds. What the turns came to
/// is returned per worker, in the workers' order.
///
/// Each round has an order of its own: a worker with threads that work off what
/// was recorded may still be at it after its answer, and must not always disturb
/// the same one.
///
/// # Errors
///
/// The first that a turn returns.
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

/// Fisher-Yates, with Knuth's generator: the same in every run.
fn shuffle(order: &mut [usize], random: &mut u64) {
    for last in (1..order.len()).rev() {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, (*random >> 33) as usize % (last + 1));
    }
}

//! Workers: each takes the next chapter, reads it, packs it, and writes a report about it into the
//! pipe.
//!
//! There are more workers than CPUs, so the kernel keeps switching between them. The time off the
//! CPU does not count as exclusive time of the regions; the viewer shows it next to the exclusive
//! time.

use std::io::{self, PipeWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::corpus::CHAPTERS;
use crate::sink::Report;
use crate::{goes_on, pack, words};

/// Length of a period, in which all workers first work and then sleep.
const TURN: Duration = Duration::from_millis(100);
/// Part of the period in which all workers work. The workers use about the same share of the CPUs
/// as this is of the period.
const WORK: Duration = Duration::from_millis(65);

/// One in this many packed chapters is unpacked again, and compared.
const VERIFY_EVERY: usize = 4;

/// The chapters, handed out in order and round again.
pub(crate) struct Queue {
    taken: AtomicUsize,
    opened: Instant,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { taken: AtomicUsize::new(0), opened: Instant::now() }
    }

    /// The next number, unique among all workers.
    fn take(&self) -> usize {
        // Relaxed: the numbers only have to be unique.
        self.taken.fetch_add(1, Ordering::Relaxed)
    }

    /// Time until the next period, if the workers are to sleep now. They all sleep at the same time
    /// without communication, since their periods begin at the same moments.
    fn rest(&self) -> Option<Duration> {
        let into_turn =
            Duration::from_nanos((self.opened.elapsed().as_nanos() % TURN.as_nanos()) as u64);
        (into_turn >= WORK).then(|| TURN - into_turn)
    }
}

/// Runs a worker until `stop` is set.
pub(crate) fn run(stop: &AtomicBool, queue: &Queue, mut pipe: PipeWriter) {
    while goes_on(stop) {
        if let Some(rest) = queue.rest() {
            pfp::scope!("rest");
            thread::sleep(rest);
        }
        process(queue.take(), &mut pipe).expect("the sink reads until the last worker is gone");
    }
}

/// All work on one chapter.
fn process(number: usize, pipe: &mut PipeWriter) -> io::Result<()> {
    pfp::scope!("chapter");
    let chapter = number % CHAPTERS.len();
    let text = CHAPTERS[chapter];

    let (words, index) = words::parse(text);
    let vocabulary = words::vocabulary(&index);
    let packed = pack::compress(text.as_bytes())?;
    let damaged = number.is_multiple_of(VERIFY_EVERY) && !pack::verify(&packed, text.as_bytes());

    let report = Report {
        chapter: chapter as u32,
        words: words as u32,
        distinct: vocabulary.len() as u32,
        top_count: vocabulary.first().map_or(0, |&(_, count)| count) as u32,
        packed_bytes: packed.bytes.len() as u32,
        checksum: packed.checksum,
        damaged: u32::from(damaged),
    };
    publish(report, pipe)
}

#[pfp::function]
fn publish(report: Report, pipe: &mut PipeWriter) -> io::Result<()> {
    // Shorter than PIPE_BUF, so the kernel writes it in one piece, not mixed with another worker's.
    pipe.write_all(&report.to_bytes())
}

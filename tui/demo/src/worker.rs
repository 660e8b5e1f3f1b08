//! Workers: each takes the next chapter, reads it, packs it, and writes a line about it into the pipe.
//!
//! There are more of them than CPUs, so the kernel keeps taking the CPU from one to give it to another. The
//! regions' own time does not grow by that; the time off the CPU stands beside it.

use std::io::{self, PipeWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::corpus::CHAPTERS;
use crate::sink::Report;
use crate::{goes_on, pack, words};

/// One turn of work and rest.
const TURN: Duration = Duration::from_millis(100);
/// The part of a turn in which all workers work at once, which is about the share of the CPUs they take.
const WORK: Duration = Duration::from_millis(65);

/// Every so many chapters, the packed one is unpacked again and compared.
const VERIFY_EVERY: usize = 4;

/// The chapters, handed out in turn and without end.
pub(crate) struct Queue {
    taken: AtomicUsize,
    opened: Instant,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { taken: AtomicUsize::new(0), opened: Instant::now() }
    }

    /// A number nobody else has.
    fn take(&self) -> usize {
        // Relaxed: the numbers only have to differ.
        self.taken.fetch_add(1, Ordering::Relaxed)
    }

    /// How long to rest, if this is the resting part of the turn. The workers agree on it without a word,
    /// since all count from the same moment.
    fn rest(&self) -> Option<Duration> {
        let into_turn =
            Duration::from_nanos((self.opened.elapsed().as_nanos() % TURN.as_nanos()) as u64);
        (into_turn >= WORK).then(|| TURN - into_turn)
    }
}

/// A worker's life.
pub(crate) fn run(stop: &AtomicBool, queue: &Queue, mut pipe: PipeWriter) {
    while goes_on(stop) {
        if let Some(rest) = queue.rest() {
            pfp::scope!("rest");
            thread::sleep(rest);
        }
        process(queue.take(), &mut pipe).expect("the sink reads until the last worker is gone");
    }
}

/// Everything that is done to one chapter.
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
    // Less than PIPE_BUF, so the kernel never mixes it with another worker's.
    pipe.write_all(&report.to_bytes())
}

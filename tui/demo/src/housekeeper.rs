//! The housekeeper: wakes ten times a second, reads the memory use, and now and then starts an
//! errand, a short-lived thread.
//!
//! Shows a region that runs at a fixed period with an exponential average, and the numeric
//! interface with a loop that starts with `end`.

use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::corpus::CHAPTERS;
use crate::{goes_on, words};

const PERIOD: Duration = Duration::from_millis(100);
/// Time constant of the average: at this period, each new measurement has a weight of 0.2.
const AVERAGE_OVER: Duration = Duration::from_millis(500);

/// Number of rounds from one errand to the next.
const ERRAND_EVERY: usize = 2;

/// A point by number: one whole round of the loop, from `end` to `end`, sleep included.
const ROUND: u32 = 1;

/// The work in a round.
static HOUSEKEEPING: pfp::Point = pfp::Point::new("housekeeping");

/// The housekeeper's observations.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    pub(crate) errands: u64,
    pub(crate) longest_word: &'static str,
    pub(crate) peak_resident_pages: u64,
}

/// Runs the housekeeper until `stop` is set.
pub(crate) fn run(stop: &AtomicBool) -> io::Result<Sightings> {
    // Points with numbers have no name and start switched off.
    pfp::Point::numbered(ROUND).set_name("round");
    pfp::Point::numbered(ROUND)
        .set_average(PERIOD, AVERAGE_OVER)
        .expect("100 ms over 500 ms is in range");
    pfp::Point::numbered(ROUND).enable();
    HOUSEKEEPING.set_average(PERIOD, AVERAGE_OVER).expect("as above");

    let mut sightings = Sightings::default();
    let mut errand = None;
    let mut next_round = Instant::now();
    for round in 0usize.. {
        // The first `end` has no region to end, which is allowed. These two lines therefore measure
        // every round, wherever the body of the loop continues.
        pfp::Point::numbered(ROUND).end();
        pfp::Point::numbered(ROUND).begin_once();
        if !goes_on(stop) {
            break;
        }
        HOUSEKEEPING.begin();
        sightings.peak_resident_pages = sightings.peak_resident_pages.max(resident_pages()?);
        if round.is_multiple_of(ERRAND_EVERY) {
            sightings.collect(errand.replace(send_out(round)?));
        }
        HOUSEKEEPING.end();

        next_round += PERIOD;
        pfp::scope!("sleep");
        thread::sleep(next_round.saturating_duration_since(Instant::now()));
    }
    // The last round is incomplete. Latching its end keeps it out of the count.
    pfp::Point::numbered(ROUND).end_latched();
    sightings.collect(errand);
    Ok(sightings)
}

impl Sightings {
    /// Collects the result of an errand, if there was one.
    fn collect(&mut self, errand: Option<JoinHandle<&'static str>>) {
        let Some(errand) = errand else { return };
        let word = errand.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.errands += 1;
        if word.len() > self.longest_word.len() {
            self.longest_word = word;
        }
    }
}

/// Resident pages of the program: the second number in this file.
fn resident_pages() -> io::Result<u64> {
    let figures = fs::read_to_string("/proc/self/statm")?;
    let resident = figures.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    resident.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "/proc/self/statm has no second figure")
    })
}

/// Starts a thread for one small job. When the thread ends, its figures move to the program's
/// totals.
fn send_out(round: usize) -> io::Result<JoinHandle<&'static str>> {
    let chapter = CHAPTERS[round / ERRAND_EVERY % CHAPTERS.len()];
    thread::Builder::new().name("errand".into()).spawn(move || {
        pfp::scope!("errand");
        longest_word(chapter)
    })
}

fn longest_word(text: &str) -> &str {
    words::tokenize(text)
        .iter()
        .map(|word| word.text)
        .max_by_key(|word| word.len())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_word_is_found() {
        assert_eq!(longest_word("Who, WHO? Everybody."), "Everybody");
        assert_eq!(longest_word("..."), "");
    }

    #[test]
    fn the_program_holds_some_memory() {
        assert!(resident_pages().unwrap() > 0);
    }
}

//! Searches through the book that run side by side as async functions on one thread.
//!
//! Shows a region that is measured over all polls of a future: `search` has a count of one and the
//! time of all its polls, without the pauses between them and without the other searches.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::corpus::{BOOK, CHAPTERS};
use crate::{executor, goes_on};

/// Words that are searched for concurrently, round after round.
const SOUGHT: [&str; 3] = ["Alice", "Queen", "Hatter"];

/// Pause of a search after each chapter. The other searches run during the pause.
const PAUSE: Duration = Duration::from_millis(5);

/// Results of all searches.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) searches: u64,
    pub(crate) mismatches: u64,
}

/// Runs the searches until `stop` is set.
pub(crate) fn run(stop: &AtomicBool) -> Results {
    let expected = SOUGHT.map(|word| BOOK.matches(word).count());
    let mut results = Results::default();
    while goes_on(stop) {
        let found = executor::run_all(SOUGHT.map(search));
        results.searches += found.len() as u64;
        results.mismatches +=
            found.iter().zip(expected).filter(|&(&found, expected)| found != expected).count()
                as u64;
    }
    results
}

/// Counts a word in the whole book, chapter by chapter.
#[pfp::function]
async fn search(word: &str) -> usize {
    let mut found = 0;
    for chapter in CHAPTERS.iter() {
        found += scan(chapter, word);
        executor::pause(PAUSE).await;
    }
    found
}

#[pfp::function]
fn scan(chapter: &str, word: &str) -> usize {
    chapter.matches(word).count()
}

//! The sink: reads the workers' results from a pipe, checks them, and assembles whole editions.
//!
//! Shows a region that is nearly all waiting (`sink.read`), and a latched one: an edition is
//! assembled bit by bit as chapters arrive, and counts as one measurement when it is complete.

use std::io::{PipeReader, Read};

use crate::corpus::{BOOK, CHAPTER_COUNT, CHAPTERS};

/// The result of a worker for one chapter. The report is sent as seven little-endian words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) chapter: u32,
    pub(crate) words: u32,
    pub(crate) distinct: u32,
    /// Occurrences of the most frequent word.
    pub(crate) top_count: u32,
    pub(crate) packed_bytes: u32,
    pub(crate) checksum: u32,
    /// 1 if the packed chapter did not unpack to the same text.
    pub(crate) damaged: u32,
}

impl Report {
    const WORDS: usize = 7;
    const BYTES: usize = 4 * Self::WORDS;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let Self { chapter, words, distinct, top_count, packed_bytes, checksum, damaged } = self;
        let fields = [chapter, words, distinct, top_count, packed_bytes, checksum, damaged];

        let mut bytes = [0; Self::BYTES];
        for (place, field) in bytes.chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [chapter, words, distinct, top_count, packed_bytes, checksum, damaged] =
            std::array::from_fn(|at| {
                u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[4 * at + byte]))
            });
        Self { chapter, words, distinct, top_count, packed_bytes, checksum, damaged }
    }
}

/// Totals of the sink.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) chapters: u64,
    pub(crate) words: u64,
    pub(crate) editions: u64,
    pub(crate) mismatches: u64,
}

/// Runs the sink until the last writer closes its end of the pipe.
pub(crate) fn run(mut pipe: PipeReader) -> Totals {
    let mut totals = Totals::default();
    let mut first_reports = [None; CHAPTER_COUNT];
    let mut edition = Edition::new();
    let book_checksum = crc32fast::hash(BOOK.as_bytes());

    while let Some(report) = read(&mut pipe) {
        totals.chapters += 1;
        totals.words += u64::from(report.words);
        totals.mismatches += u64::from(!check(&report, &mut first_reports));
        if let Some(checksum) = edition.add(&report) {
            totals.editions += 1;
            totals.mismatches += u64::from(checksum != book_checksum);
        }
    }
    totals
}

/// The next report; `None` once all writers are gone.
fn read(pipe: &mut PipeReader) -> Option<Report> {
    pfp::scope!("sink.read");
    let mut bytes = [0; Report::BYTES];
    pipe.read_exact(&mut bytes).ok()?;
    Some(Report::from_bytes(bytes))
}

/// Whether a report is correct: the chapter unpacked to the same text, and the report equals
/// earlier reports of that chapter.
fn check(report: &Report, first_reports: &mut [Option<Report>; CHAPTER_COUNT]) -> bool {
    pfp::scope!("sink.check");
    let first = first_reports[report.chapter as usize].get_or_insert(*report);
    report == first && report.damaged == 0
}

/// A book that is being assembled.
struct Edition {
    /// Checksums of chapters that arrived before their turn.
    waiting: [Option<u32>; CHAPTER_COUNT],
    /// Number of chapters added so far.
    complete: usize,
    /// Checksum of the chapters added so far.
    checksum: crc32fast::Hasher,
}

/// The work on one edition, over all reports that it takes.
static EDITION: pfp::Point = pfp::Point::new("edition");

impl Edition {
    fn new() -> Self {
        Self { waiting: [None; CHAPTER_COUNT], complete: 0, checksum: crc32fast::Hasher::new() }
    }

    /// Adds a chapter. When the book is complete, returns its checksum and starts the next one. A
    /// chapter that was added already is ignored: workers overtake one another.
    fn add(&mut self, report: &Report) -> Option<u32> {
        EDITION.begin();
        let chapter = report.chapter as usize;
        if chapter >= self.complete {
            self.waiting[chapter] = Some(report.checksum);
        }
        while let Some(chapter) = self.next_chapter() {
            self.checksum.combine(&chapter);
        }
        if self.complete < CHAPTER_COUNT {
            // Latched: keeps the cycles so far for the next report and counts no measurement yet.
            EDITION.end_latched();
            return None;
        }
        let whole = std::mem::replace(self, Self::new());
        let checksum = whole.checksum.finalize();
        EDITION.end();
        Some(checksum)
    }

    /// The next chapter of the book, if it has arrived.
    fn next_chapter(&mut self) -> Option<crc32fast::Hasher> {
        let checksum = self.waiting.get_mut(self.complete)?.take()?;
        let bytes = CHAPTERS[self.complete].len() as u64;
        self.complete += 1;
        Some(crc32fast::Hasher::new_with_initial_len(checksum, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn report(chapter: usize) -> Report {
        Report {
            chapter: chapter as u32,
            words: 2,
            distinct: 3,
            top_count: 4,
            packed_bytes: 5,
            checksum: crc32fast::hash(CHAPTERS[chapter].as_bytes()),
            damaged: 0,
        }
    }

    /// The sink's totals for these reports.
    fn totals_of(reports: impl IntoIterator<Item = Report>) -> Totals {
        let (pipe_out, mut pipe_in) = std::io::pipe().unwrap();
        for report in reports {
            pipe_in.write_all(&report.to_bytes()).unwrap();
        }
        drop(pipe_in);
        run(pipe_out)
    }

    #[test]
    fn reports_travel_unchanged() {
        let sent = Report { checksum: 0x0102_0304, damaged: u32::MAX, ..report(11) };
        assert_eq!(Report::from_bytes(sent.to_bytes()), sent);
    }

    #[test]
    fn editions_are_whole_in_any_order() {
        let in_order = (0..CHAPTER_COUNT).map(report);
        let backwards = (0..CHAPTER_COUNT).rev().map(report);
        let totals = totals_of(in_order.chain(backwards));
        assert_eq!((totals.chapters, totals.words, totals.editions), (24, 48, 2));
        assert_eq!(totals.mismatches, 0);
    }

    #[test]
    fn every_kind_of_error_is_counted() {
        let damaged = Report { damaged: 1, ..report(0) };
        let differs = Report { words: 9, ..report(1) };
        assert_eq!(totals_of([damaged]).mismatches, 1);
        assert_eq!(totals_of([report(1), differs]).mismatches, 1);

        // The checksum of every chapter is wrong in its only report, so no report contradicts an
        // earlier one, and only the book's checksum shows the error.
        let book = (0..CHAPTER_COUNT).map(|chapter| Report { checksum: 7, ..report(chapter) });
        let totals = totals_of(book);
        assert_eq!((totals.editions, totals.mismatches), (1, 1));
    }
}

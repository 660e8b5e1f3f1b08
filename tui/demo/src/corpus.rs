//! The text on which the demo works, divided into chapters.

use std::sync::LazyLock;

/// "Alice's Adventures in Wonderland"; `alice29.txt` is a link to the copy in assets/, whose README
/// names its origin.
pub(crate) const BOOK: &str = include_str!("../alice29.txt");

/// Number of chapters in the book.
pub(crate) const CHAPTER_COUNT: usize = 12;

/// The chapters in order. Together they are the whole book, title page included.
pub(crate) static CHAPTERS: LazyLock<[&'static str; CHAPTER_COUNT]> = LazyLock::new(|| {
    let mut starts: Vec<usize> = BOOK.match_indices("CHAPTER ").map(|(at, _)| at).collect();
    starts[0] = 0; // the title page goes with the first chapter
    starts.push(BOOK.len());

    let chapters: Vec<&str> = starts.windows(2).map(|ends| &BOOK[ends[0]..ends[1]]).collect();
    chapters.try_into().expect("the book has twelve chapters")
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chapters_are_the_whole_book() {
        assert_eq!(CHAPTERS.concat(), BOOK);
        assert!(CHAPTERS[0].contains("Down the Rabbit-Hole"));
        assert!(CHAPTERS[11].contains("THE END"));
    }
}

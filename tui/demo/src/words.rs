//! Text to words, words to an inverted index, and the index to a vocabulary in order of frequency.
//!
//! Shows nested regions (`parse` contains `tokenize` and `index`), a point in a hot loop that is
//! off until the user switches it on (`word`), and recursion (`sort`).

use std::cmp::Ordering;
use std::collections::HashMap;

/// One word of a text, and the number of its sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    pub(crate) sentence: u32,
}

/// The index: from each lower-case word to the sentences that contain it, once per occurrence.
pub(crate) type WordIndex = HashMap<String, Vec<u32>>;

/// Runs for every word, so it starts switched off: a disabled point costs next to nothing even
/// here.
static WORD: pfp::Point = pfp::Point::new("word");

/// Switches off the points that are too hot to measure all the time. The viewer can switch them on.
pub(crate) fn quieten() {
    WORD.disable();
}

/// Splits a text into words and indexes their occurrences.
pub(crate) fn parse(text: &str) -> (usize, WordIndex) {
    pfp::scope!("parse");
    let words = tokenize(text);
    (words.len(), index(&words))
}

/// The words of a text. An apostrophe between two letters is part of the word ("don't").
#[pfp::function]
pub(crate) fn tokenize(text: &str) -> Vec<Word<'_>> {
    let bytes = text.as_bytes();
    let letter = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphabetic);

    let mut words = Vec::new();
    let mut sentence = 0;
    let mut at = 0;
    while at < bytes.len() {
        if letter(at) {
            let _measured = WORD.measure();
            let start = at;
            while letter(at) || (bytes.get(at) == Some(&b'\'') && letter(at + 1)) {
                at += 1;
            }
            words.push(Word { text: &text[start..at], sentence });
        } else {
            sentence += u32::from(matches!(bytes[at], b'.' | b'!' | b'?'));
            at += 1;
        }
    }
    words
}

/// The inverted index of a list of words.
#[pfp::function]
pub(crate) fn index(words: &[Word<'_>]) -> WordIndex {
    let mut index = WordIndex::new();
    for word in words {
        index.entry(word.text.to_ascii_lowercase()).or_default().push(word.sentence);
    }
    index
}

/// One word with the number of its occurrences.
pub(crate) type Frequency<'a> = (&'a str, usize);

/// Every word of an index with its count, the most frequent first; words of equal frequency in
/// alphabetical order.
pub(crate) fn vocabulary(index: &WordIndex) -> Vec<Frequency<'_>> {
    let mut words: Vec<_> =
        index.iter().map(|(word, places)| (word.as_str(), places.len())).collect();
    sort(&mut words);
    words
}

/// Below this length, splitting the list further costs more than it saves.
const SHORT_LIST: usize = 24;

/// Merge sort. The function is recursive, yet its point counts each cycle once: the exclusive time
/// of a call leaves out the calls inside.
#[pfp::function]
fn sort(words: &mut [Frequency<'_>]) {
    if words.len() <= SHORT_LIST {
        insertion_sort(words);
        return;
    }
    let middle = words.len() / 2;
    sort(&mut words[..middle]);
    sort(&mut words[middle..]);
    merge(words, middle);
}

fn insertion_sort(words: &mut [Frequency<'_>]) {
    for end in 1..words.len() {
        let mut at = end;
        while at > 0 && by_frequency(&words[at - 1], &words[at]) == Ordering::Greater {
            words.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// Merges the sorted halves on both sides of `middle`. Only the left half is copied: writing never
/// overtakes reading of the right half.
fn merge(words: &mut [Frequency<'_>], middle: usize) {
    let left = words[..middle].to_vec();
    let mut right = middle;
    let mut out = 0;
    for word in left {
        while right < words.len() && by_frequency(&words[right], &word) == Ordering::Less {
            words[out] = words[right];
            right += 1;
            out += 1;
        }
        words[out] = word;
        out += 1;
    }
}

fn by_frequency(a: &Frequency<'_>, b: &Frequency<'_>) -> Ordering {
    b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{BOOK, CHAPTERS};
    use std::collections::BTreeMap;

    /// A simple way to count words, as a reference.
    fn naive_counts(text: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for run in text.split(|c: char| !c.is_ascii_alphabetic() && c != '\'') {
            for word in run.trim_matches('\'').split("''").filter(|word| !word.is_empty()) {
                *counts.entry(word.to_lowercase()).or_default() += 1;
            }
        }
        counts
    }

    #[test]
    fn counts_agree_with_the_naive_ones() {
        for text in CHAPTERS.iter().copied().chain([BOOK, "", "'", "don't 'tis''so' a'"]) {
            let (total, index) = parse(text);
            let counts: BTreeMap<_, _> =
                index.iter().map(|(word, places)| (word.clone(), places.len())).collect();
            assert_eq!(counts, naive_counts(text));
            assert_eq!(total, counts.values().sum::<usize>());
        }
    }

    #[test]
    fn words_know_their_sentence() {
        let words = tokenize("Who are you? I don't know.\r\nStop! Now");
        let found: Vec<_> = words.iter().map(|word| (word.text, word.sentence)).collect();
        assert_eq!(
            found,
            [
                ("Who", 0),
                ("are", 0),
                ("you", 0),
                ("I", 1),
                ("don't", 1),
                ("know", 1),
                ("Stop", 2),
                ("Now", 3)
            ]
        );
    }

    #[test]
    fn sort_agrees_with_the_standard_one() {
        let (_, index) = parse(BOOK);
        let sorted = vocabulary(&index);
        let mut expected = sorted.clone();
        expected.reverse();
        expected.sort_by(by_frequency);
        assert_eq!(sorted, expected);
        assert_eq!(sorted[0].0, "the");
    }

    #[test]
    fn sort_takes_every_length() {
        let (_, index) = parse(CHAPTERS[0]);
        let all: Vec<_> =
            index.iter().map(|(word, places)| (word.as_str(), places.len())).collect();
        for length in 0..all.len().min(200) {
            let mut sorted = all[..length].to_vec();
            let mut expected = sorted.clone();
            sort(&mut sorted);
            expected.sort_by(by_frequency);
            assert_eq!(sorted, expected);
        }
    }
}

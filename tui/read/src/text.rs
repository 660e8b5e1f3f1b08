//! Makes untrusted text safe to show, and fits text into columns.
//!
//! Names come from other programs' memory and from files. A control character in a name could move
//! the cursor, change colours or make the terminal send input; a bidirectional override could make
//! one name look like another. Only [`clean`] decides which characters are allowed;
//! [`crate::source`] passes all names through it.

use std::borrow::Cow;
use std::io::Write;
use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Replaces a character that must not be shown.
const REPLACEMENT: char = '\u{fffd}';
/// Maximum number of characters of one text.
const LONGEST: usize = 512;
/// Maximum number of marks on one character: more would be drawn across the rows above and below.
const MAX_MARKS: usize = 4;

/// Replaces every character that does more than show a glyph: control characters, bidirectional
/// controls, invisible formatting, line separators, and marks that pile up on one character. Text
/// beyond 512 characters is cut off.
pub fn clean(text: &str) -> Cow<'_, str> {
    let is_short = text.len() <= LONGEST || text.chars().take(LONGEST + 1).count() <= LONGEST;
    if is_short && (is_plain(text) || mended(text).eq(text.chars())) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(mended(text).take(LONGEST).collect())
}

/// The characters, with replacements.
fn mended(text: &str) -> impl Iterator<Item = char> {
    let mut marks = 0;
    text.chars().map(move |c| {
        marks = if c.width() == Some(0) { marks + 1 } else { 0 };
        if is_unfit(c) || marks > MAX_MARKS { REPLACEMENT } else { c }
    })
}

/// Cleans each line of a message without cutting it: messages contain names and contents of files.
pub fn clean_lines(text: &str) -> String {
    text.chars().map(|c| if is_unfit(c) && c != '\n' { REPLACEMENT } else { c }).collect()
}

/// Writes a message to standard error. Errors are ignored, since standard error may be closed.
pub fn warn(message: &str) {
    let _ = writeln!(std::io::stderr(), "pfp-top: {}", clean_lines(message));
}

/// Cleans a string in place; see [`clean`].
pub fn clean_in_place(text: &mut String) {
    if let Cow::Owned(cleaned) = clean(text) {
        *text = cleaned;
    }
}

/// A text as a field of CSV. Spreadsheets run a field that begins with `=`, `+`, `-`, `@`, a tab or
/// a carriage return as a formula, so such a field gets an apostrophe in front, which marks text. A
/// text that already has apostrophes before such a character gets one more, so that different texts
/// stay different.
pub fn cell(text: &str) -> Cow<'_, str> {
    // The last four are the full-width forms of East Asian keyboards.
    const STARTS: [char; 10] =
        ['=', '+', '-', '@', '\t', '\r', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];
    if text.trim_start_matches('\'').starts_with(STARTS) {
        Cow::Owned(format!("'{text}"))
    } else {
        Cow::Borrowed(text)
    }
}

fn is_unfit(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Bidirectional marks, embeddings, overrides and isolates.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line and paragraph separators, zero-width and other invisible
            // formatting, letters without a glyph, tags.
            | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}'
            | '\u{2028}' | '\u{2029}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Number of columns that `text` takes on the screen.
pub fn width(text: &str) -> usize {
    if is_plain(text) { text.len() } else { UnicodeWidthStr::width(text) }
}

/// Whether each byte takes one column: printable ASCII, which nearly all text is.
pub fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// The text padded or cut to exactly `columns` columns; cut text ends with `ellipsis`.
pub fn fit(text: &str, columns: usize, ellipsis: char) -> String {
    let mut fitted = cut(text, columns, ellipsis);
    let missing = columns.saturating_sub(width(&fitted));
    fitted.extend(std::iter::repeat_n(' ', missing));
    fitted
}

/// The text in at most `columns` columns, scrolled to the left by up to `offset` columns, but not
/// beyond its end. Without an offset, its middle is cut out.
pub fn scrolled(text: &str, columns: usize, offset: usize, ellipsis: char) -> String {
    let (left, right) = seen(text, columns, offset);
    let mut shown = String::with_capacity(left.len() + right.len());
    if left.start > 0 {
        shown.push(ellipsis);
    }
    shown += &text[left.clone()];
    if left.end < right.start && columns > 0 {
        shown.push(ellipsis);
    }
    shown + &text[right]
}

/// The byte ranges of a text that [`scrolled`] shows: its start and its end, or one part and an
/// empty range at the end. [`scrolled`] puts an ellipsis where bytes are missing before a range.
pub fn seen(text: &str, columns: usize, offset: usize) -> (Range<usize>, Range<usize>) {
    let (all, wide) = (text.len(), width(text));
    let Some(room) = columns.checked_sub(1).filter(|_| wide > columns) else {
        return (0..if wide > columns { 0 } else { all }, all..all);
    };
    if offset == 0 || room == 0 {
        return (0..start(text, room / 2).len(), all - end(text, room - room / 2).len()..all);
    }
    let rest = end(text, wide - offset.min(wide - room));
    let from = all - rest.len();
    let shown = if width(rest) <= room { rest } else { start(rest, room - 1) };
    (from..from + shown.len(), all..all)
}

/// The text in at most `columns` columns, with its middle cut out if it is longer: names of
/// functions often differ at their ends.
pub fn cut_middle(text: &str, columns: usize, ellipsis: char) -> String {
    scrolled(text, columns, 0, ellipsis)
}

/// The start of the text, in at most `columns` columns.
fn start(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let fits = |grapheme: &&str| {
        used += width(grapheme);
        used <= columns
    };
    let bytes = text.graphemes(true).take_while(fits).map(str::len).sum();
    &text[..bytes]
}

/// The end of the text, in at most `columns` columns.
pub fn end(text: &str, columns: usize) -> &str {
    let mut rest = text.graphemes(true);
    while width(rest.as_str()) > columns {
        rest.next();
    }
    rest.as_str()
}

/// A number of things, in words: `1 point`, `2 points`.
pub fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// The text in at most `columns` columns, cut with `ellipsis` if it is longer.
pub fn cut(text: &str, columns: usize, ellipsis: char) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(1) else {
        return String::new();
    };
    let mut cut = start(text, room).to_owned();
    cut.push(ellipsis);
    cut
}

/// The first few names of a list: `a, b, c, d, ...`.
pub fn first_names(names: &[String]) -> String {
    const MOST: usize = 4;
    let more = if names.len() > MOST { ", ..." } else { "" };
    names[..names.len().min(MOST)].join(", ") + more
}

/// The text in lines of at most `columns` columns, broken between words.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    wrapped_behind("", "", text, columns)
}

/// Wraps a text, with one prefix for the first line and another for the others.
pub fn wrapped_behind(first: &str, others: &str, text: &str, columns: usize) -> Vec<String> {
    let options = textwrap::Options::new(columns.max(1))
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .initial_indent(first)
        .subsequent_indent(others);
    textwrap::wrap(text, options).into_iter().map(Cow::into_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_pass() {
        for hostile in [
            "\x1b[2Jgone",
            "bell\x07",
            "del\x7f",
            "c1\u{9b}31m",
            "line\nbreak",
            "\u{202e}gnp.exe",
            "iso\u{2066}late",
            "zero\u{200b}width",
            "soft\u{ad}hyphen",
            "filler\u{3164}",
        ] {
            let cleaned = clean(hostile);
            assert!(cleaned.contains(REPLACEMENT), "{hostile:?}");
            assert!(!cleaned.chars().any(is_unfit), "{hostile:?}");
        }
    }

    #[test]
    fn marks_do_not_pile_up() {
        for name in ["e\u{301}", "n\u{303}\u{32d}o", "\u{915}\u{94d}\u{937}", "👩\u{200d}💻"] {
            assert!(matches!(clean(name), Cow::Borrowed(same) if same == name), "{name}");
        }
        let pile = format!("a{}b", "\u{336}".repeat(400));
        let cleaned = clean(&pile);
        assert_eq!(cleaned.matches('\u{336}').count(), MAX_MARKS);
        assert!(cleaned.starts_with('a') && cleaned.ends_with('b'));
        assert_eq!(clean(&"\u{336}".repeat(5000)).chars().count(), LONGEST);
    }

    #[test]
    fn a_cell_is_no_formula() {
        // The last text equals the cell of the first one, and must become a different cell.
        for text in ["=1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\u{ff1d}1", "'=1"] {
            assert_eq!(cell(text), format!("'{text}"));
        }
        for text in ["", "a=1", "io.read", "'a", "1-1", "größe"] {
            assert!(matches!(cell(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn ordinary_names_pass_untouched() {
        for name in ["io.parse", "größe", "解析", "a::b<c>", "", "naïve 🦀"] {
            assert!(matches!(clean(name), Cow::Borrowed(same) if same == name));
        }
    }

    #[test]
    fn a_message_keeps_its_lines_and_nothing_else_that_controls() {
        let long = "x".repeat(2 * LONGEST);
        let message = format!("a\x1b]0;b\x07\r\nc\u{202e}{long}");
        let cleaned = format!("a\u{fffd}]0;b\u{fffd}\u{fffd}\nc\u{fffd}{long}");
        assert_eq!(clean_lines(&message), cleaned);
    }

    #[test]
    fn endless_names_are_cut() {
        assert_eq!(clean(&"x".repeat(100_000)).len(), LONGEST);
    }

    #[test]
    fn fitted_text_takes_exactly_its_columns() {
        for text in ["", "short", "exactly ten", "解析解析解析解析", "a解b析c解d析"] {
            for columns in 0..16 {
                assert_eq!(width(&fit(text, columns, '~')), columns, "{text} {columns}");
            }
        }
        assert_eq!(fit("parse_header", 8, '~'), "parse_h~");
        // Characters that readers see as one are kept or cut off together.
        for text in [
            "a🇩🇪🇫🇷🇬🇧",
            "1\u{fe0f}\u{20e3}2\u{fe0f}\u{20e3}",
            "a❤\u{fe0f}❤\u{fe0f}b",
            "👩\u{200d}💻👩\u{200d}💻",
        ] {
            let whole: Vec<&str> = text.graphemes(true).collect();
            for columns in 0..8 {
                assert_eq!(width(&fit(text, columns, '~')), columns, "{text} {columns}");
                for cut in [cut(text, columns, '~'), end(text, columns).to_owned()] {
                    let parts = || cut.graphemes(true).filter(|part| *part != "~");
                    assert!(parts().all(|part| whole.contains(&part)), "{text} {columns}: {cut}");
                }
            }
        }
    }

    #[test]
    fn text_cut_in_the_middle_keeps_its_end() {
        assert_eq!(cut_middle("a::very::long::name", 10, '~'), "a::v~:name");
        assert_eq!(cut_middle("short", 5, '~'), "short");
        assert_eq!(scrolled("a::very::long::name", 10, 0, '~'), "a::v~:name");
        assert_eq!(scrolled("a::very::long::name", 10, 3, '~'), "~very::lo~");
        assert_eq!(scrolled("a::very::long::name", 10, 99, '~'), "~ong::name");
        assert_eq!(scrolled("short", 5, 99, '~'), "short");
        for text in ["exactly ten", "解析解析解析解析", "a解b析c解d析"] {
            for columns in 0..16 {
                assert!(width(&cut_middle(text, columns, '~')) <= columns, "{text} {columns}");
                for offset in 0..16 {
                    let scrolled = scrolled(text, columns, offset, '~');
                    assert!(width(&scrolled) <= columns, "{text} {columns}");
                    let (left, right) = seen(text, columns, offset);
                    let parts = [&text[left], &text[right]].concat();
                    assert_eq!(scrolled.replace('~', ""), parts, "{text} {columns} {offset}");
                }
            }
        }
    }
}

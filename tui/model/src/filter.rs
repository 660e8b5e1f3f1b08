//! The filter of the table: a text that the user types, as a test of a point.
//!
//! ```text
//! parse          a pattern for the point's name: see [`pfp_read::pattern`]
//! thread:pack    a pattern for the name of a thread that was in the point
//! tid:4711       the id of a thread that was in the point
//! file:io.rs     a pattern for the point's source file
//! domain:nvtx    a pattern for the domain of an annotation for another tool
//! process:web    a pattern for the name of the point's process, if there are several
//! host:node3     a pattern for the machine or the place of the point's process
//! load>5         a comparison of a column's figure: >, <, >=, <= or =, in the column's unit
//! !json          points for which the term does not hold
//! io !thread:ui  points for which all terms hold
//! ```

use std::ops::Range;

use crate::columns::{Column, Measure};
use crate::{Figures, PointRow};
use pfp_read::pattern::NamePattern;
use pfp_read::snapshot::Process;
use pfp_read::units;

/// A test of points.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    text: String,
    /// The terms; all must hold.
    terms: Vec<Term>,
}

/// A term of the filter.
#[derive(Clone, Debug)]
struct Term {
    /// Whether the test must fail.
    excludes: bool,
    of: Field,
    test: Test,
}

/// The property of a point that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Thread,
    Tid,
    File,
    Domain,
    Process,
    Host,
}

const FIELDS: [(&str, Field); 6] = [
    ("thread:", Field::Thread),
    ("tid:", Field::Tid),
    ("file:", Field::File),
    ("domain:", Field::Domain),
    ("process:", Field::Process),
    ("host:", Field::Host),
];

/// A test of a point.
#[derive(Clone, Debug)]
enum Test {
    Name(NamePattern),
    /// A comparison of a figure with a value.
    Figure {
        column: Column,
        signs: String,
        value: f64,
    },
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Filter {
    /// The prefixes of names, for messages.
    pub const PREFIXES: &str =
        "thread:, tid:, file:, domain:, process:, host: and columns such as load>5";

    /// The first word that looks like a prefix or a column but is not one.
    pub fn unknown(&self) -> Option<&str> {
        words(&self.text).into_iter().find_map(|word| {
            let value = word.trim_start_matches('!');
            let end = value.find(|c: char| !c.is_ascii_alphanumeric() && !"/%".contains(c))?;
            let (name, rest) = value.split_at(end);
            let is_prefix = rest.starts_with(':')
                && !rest.starts_with("::")
                && !FIELDS.iter().any(|(field, _)| field[..field.len() - 1] == *name);
            let is_column = rest.starts_with(['<', '>']) && figure(value).is_none();
            (end > 0 && !value.starts_with('/') && (is_prefix || is_column)).then(|| &value[..=end])
        })
    }

    /// A message about the word that [`Self::unknown`] finds.
    pub fn unknown_words(&self) -> Option<String> {
        let word = self.unknown()?;
        Some(format!("{word} is none of {}; it counts as part of a name", Self::PREFIXES))
    }

    /// Whether a row that is not about a point passes. `words` are the texts in the row.
    pub fn admits_words(&self, words: &[&str]) -> bool {
        let finds = |term: &Term| words.iter().any(|word| term.test.finds(word));
        self.terms.iter().all(|term| finds(term) != term.excludes)
    }

    /// Parses a filter. The error states what is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        let words = words(text);
        let several = words.len() > 1;
        let term = |word: &str| {
            // With several terms, the message names the wrong one.
            Term::new(word).map_err(|why| if several { format!("{word}: {why}") } else { why })
        };
        let terms = words.into_iter().map(term).collect::<Result<Vec<_>, _>>()?;
        let says_something = |term: &Term| !matches!(term.test, Test::Name(NamePattern::Anything));
        let terms = terms.into_iter().filter(says_something).collect();
        Ok(Self { text: text.to_owned(), terms })
    }

    /// A filter for the points of a thread: by the thread's name, or by its id if other threads
    /// have that name.
    pub fn of_thread(name: &str, tid: u32, is_only_one: bool) -> Self {
        let by_name = !name.is_empty() && !name.contains('"') && (is_only_one || tid == 0);
        let (text, of, whole) = match by_name {
            true => (format!("thread:\"{name}\""), Field::Thread, name.to_owned()),
            false => (format!("tid:{tid}"), Field::Tid, tid.to_string()),
        };
        let test = Test::Name(NamePattern::Whole(whole));
        let term = Term { excludes: false, of, test };
        Self { text, terms: vec![term] }
    }

    /// The filter as the user typed it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the filter can hide anything.
    pub fn is_on(&self) -> bool {
        !self.terms.is_empty()
    }

    /// The parts of a point's name that the terms for names match, in bytes. The parts may overlap.
    pub fn found_in(&self, name: &str) -> Vec<Range<usize>> {
        let terms = self.terms.iter().filter(|term| term.of == Field::Name && !term.excludes);
        let patterns = terms.filter_map(|term| match &term.test {
            Test::Name(pattern) => Some(pattern),
            Test::Figure { .. } => None,
        });
        patterns.flat_map(|pattern| pattern.parts(name)).collect()
    }

    /// Whether a point passes.
    pub fn admits(&self, figures: &Figures) -> bool {
        self.terms.iter().all(|term| term.finds(figures) != term.excludes)
    }
}

/// The terms of a text, split at blanks that are not in quotes or between slashes.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let value = rest.trim_start_matches('!');
        let value = FIELDS.iter().find_map(|(name, _)| value.strip_prefix(name)).unwrap_or(value);
        let start = rest.len() - value.len();
        let to_blank = || value.find(char::is_whitespace).unwrap_or(value.len());
        let end = start + closed(value).unwrap_or_else(to_blank);
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    words
}

/// The index after the closing quote or slash, if the value begins with a quote or slash. The
/// closing one is the first that is followed by a blank or the end of the text.
fn closed(value: &str) -> Option<usize> {
    let mark = value.chars().next().filter(|c| matches!(c, '"' | '/'))?;
    let marks = value.char_indices().skip(1).filter(|(_, c)| *c == mark);
    let ends = |end: &usize| value[*end..].chars().next().is_none_or(char::is_whitespace);
    marks.map(|(place, _)| place + 1).find(ends)
}

/// Parses a column, a comparison and a value: `load>5`, `avg<=20us`. While the value is missing,
/// the result is a test that every point passes. `None` for other texts.
fn figure(word: &str) -> Option<Test> {
    let start = word.find(['<', '>', '='])?;
    let (name, rest) = word.split_at(start);
    let signs: String = rest.chars().take_while(|c| matches!(c, '<' | '>' | '=')).collect();
    let value = &rest[signs.len()..];
    let is_named = |column: &Column| {
        [column.word().into(), column.title().to_lowercase()].contains(&name.to_lowercase())
    };
    let column = Column::ALL.iter().copied().find(is_named)?;
    let measure = column.measure()?;
    if !["<", ">", "=", "<=", ">="].contains(&signs.as_str()) {
        return None;
    }
    if value.is_empty() {
        return Some(Test::Name(NamePattern::Anything));
    }
    let value = match measure {
        Measure::Percent => units::parse_si(value.strip_suffix('%').unwrap_or(value)),
        Measure::Seconds => units::parse_duration(value).ok().map(|time| time.as_secs_f64()),
        Measure::Number => units::parse_si(value),
    }?;
    Some(Test::Figure { column, signs, value })
}

impl Term {
    fn new(word: &str) -> Result<Self, String> {
        let (excludes, value) = match word.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, word),
        };
        let field = |(name, field): &(&str, Field)| Some((*field, value.strip_prefix(name)?));
        let (of, value) = FIELDS.iter().find_map(field).unwrap_or((Field::Name, value));
        let test = match (of, figure(value)) {
            (Field::Name, Some(figure)) => figure,
            (Field::Tid, _) if !value.is_empty() => {
                Test::Name(NamePattern::Whole(value.to_owned()))
            }
            _ => Test::Name(NamePattern::new(value)?),
        };
        Ok(Self { excludes, of, test })
    }

    fn finds(&self, figures: &Figures) -> bool {
        match &self.test {
            Test::Figure { column, signs, value } => column.figure(figures).is_some_and(|it| {
                it > *value && signs.contains('>')
                    || it < *value && signs.contains('<')
                    || it == *value && signs.contains('=')
            }),
            _ => self.finds_in(figures.row()),
        }
    }

    fn finds_in(&self, row: PointRow) -> bool {
        let (pattern, point) = (&self.test, row.point);
        match self.of {
            Field::Name if point.name.is_empty() => pattern.finds(&point.shown_name()),
            Field::Name => pattern.finds(&point.name),
            Field::File => pattern.finds(&point.file),
            Field::Domain => point.domain().is_some_and(|it| pattern.finds(it)),
            Field::Thread => row.lanes().any(|lane| pattern.finds(&lane.name)),
            Field::Tid => row.lanes().any(|lane| pattern.finds(&lane.tid.to_string())),
            Field::Process | Field::Host => {
                row.processes().any(|process| self.finds_process(process))
            }
        }
    }

    fn finds_process(&self, process: &Process) -> bool {
        let pattern = &self.test;
        match self.of {
            Field::Host => {
                pattern.finds(&process.host) || process.place().is_some_and(|it| pattern.finds(it))
            }
            _ => pattern.finds(&process.name),
        }
    }
}

impl Test {
    fn finds(&self, name: &str) -> bool {
        matches!(self, Self::Name(pattern) if pattern.finds(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    fn admitted(text: &str) -> Vec<u32> {
        let (mut source, mut model) = (Synthetic::new(), Model::default());
        source.snapshot_mut().points[8].name.clear();
        source.snapshot_mut().points[7].file = "src/net/Wait.rs".into();
        (source.snapshot_mut().points[5].file, source.snapshot_mut().points[5].line) =
            ("nvtx:pack".into(), 0);
        model.fold(source.poll().unwrap());
        let filter = Filter::new(text).unwrap();
        model.points().iter().filter(|f| filter.admits(f)).map(Figures::id).collect()
    }

    #[test]
    fn texts_are_parts_of_names_unless_they_can_be_regular_expressions() {
        for (text, expected) in [
            ("", vec![0, 1, 2, 3, 4, 5, 6, 7, 8]),
            ("io", vec![1, 2, 3]),
            ("IO", vec![]),
            ("io.r", vec![2]),
            ("^io|net", vec![1, 2, 3, 7]),
            ("^IO", vec![]),
            ("/io", vec![1, 2, 3]),
            ("/io/", vec![1, 2, 3]),
            (r"\Wre", vec![2, 6]),
            ("/", vec![0, 1, 2, 3, 4, 5, 6, 7, 8]),
            // Not a regular expression, and not in the name of a point either.
            ("io(", vec![]),
            ("#8", vec![8]),
            ("io.*", vec![1, 2, 3]),
            ("*r*d", vec![0, 2]),
            ("thread:pack", vec![4, 5, 7]),
            ("thread:^(main|x)$", vec![1, 3]),
            ("file:net", vec![7]),
            ("file:wait", vec![7]),
            ("file:/WAIT/", vec![]),
            ("file:work", vec![1, 2, 3, 4, 6, 8]),
            ("domain:pack", vec![5]),
            ("domain:^nvtx", vec![5]),
            ("domain:work", vec![]),
            // All terms must hold, except that terms with `!` must not.
            ("io thread:main", vec![1, 3]),
            ("  io   !crc ", vec![1, 2]),
            ("!io !/^(lz|sort)/ !overhead", vec![7, 8]),
            ("io !thread:main", vec![2]),
            ("file:work /^io/ !/r[ce]/", vec![1]),
            ("!file:work", vec![0, 5, 7]),
            // A term that is incomplete hides nothing.
            ("!", vec![0, 1, 2, 3, 4, 5, 6, 7, 8]),
            ("io !thread:", vec![1, 2, 3]),
            ("!/", vec![0, 1, 2, 3, 4, 5, 6, 7, 8]),
            // Exact names, and names with blanks.
            ("\"io.read\"", vec![2]),
            ("\"io.rea", vec![2]),
            ("\"io.rea\"", vec![]),
            ("thread:\"reader\"", vec![1, 2, 3, 6]),
            ("/io read|io.read/ !crc", vec![2]),
            ("tid:4712", vec![1, 2, 3, 6]),
            ("tid:47", vec![]),
            // Figures.
            ("count>=1", vec![1, 2, 3, 4, 5, 6, 7]),
            ("count=0", vec![0, 8]),
            ("!count=0 io", vec![1, 2, 3]),
            ("/s>5 io", vec![1]),
            ("avg>1ms", vec![4]),
            ("avg<20us io", vec![3]),
            ("off>80", vec![2, 7]),
            ("off%>80", vec![2, 7]),
            ("load>", vec![0, 1, 2, 3, 4, 5, 6, 7, 8]),
            ("name>5", vec![]),
        ] {
            assert_eq!(admitted(text), expected, "{text}");
        }
    }

    #[test]
    fn words_that_only_look_like_prefixes_are_recognised() {
        for (text, unknown) in [
            ("thraed:x", Some("thraed:")),
            ("io !fil:x", Some("fil:")),
            ("laod>5", Some("laod>")),
            ("load>x", Some("load>")),
            ("thread:x load>5 std::vec /a:b/ \"c:d\" io", None),
        ] {
            assert_eq!(Filter::new(text).unwrap().unknown(), unknown, "{text}");
        }
    }

    #[test]
    fn errors_in_expressions_take_one_line() {
        for (text, part) in [("/io(", "open group"), ("/a{9999}{9999}/", "size limit")] {
            let error = Filter::new(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
        let error = Filter::new("io !file:/a(/ crc").unwrap_err();
        assert!(error.starts_with("!file:/a(/: found open group"), "{error}");
    }

    #[test]
    fn figures_are_compared_in_any_order() {
        assert_eq!(admitted("thr>1 load>0"), admitted("load>0 thr>1"));
    }

    #[test]
    fn the_parts_of_a_name_that_terms_find_are_known() {
        for (text, parts) in [
            ("", &[][..]),
            ("io", &["io"]),
            ("IO", &[]),
            ("E io", &["io"]),
            ("e io", &["e", "io"]),
            ("/^io|d$/ re", &["io", "d", "re"]),
            ("\"io.read\"", &["io.read"]),
            ("!io !/read/ load>5 file:io thread:io tid:io", &[]),
        ] {
            let found = Filter::new(text).unwrap().found_in("io.read");
            let found: Vec<&str> = found.into_iter().map(|part| &"io.read"[part]).collect();
            assert_eq!(found, parts, "{text}");
        }
    }
}

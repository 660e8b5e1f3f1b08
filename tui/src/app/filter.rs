//! Which points the table shows: a text that the user types, as a test of a
//! point.
//!
//! ```text
//! parse          the name contains it, upper and lower case alike
//! Parse          with a capital in it, case counts
//! ^io\.|crc$     what can be a regular expression is one
//! /parse/        this is one in any case
//! thread:pack    the same, of the names of the threads that were in the point
//! file:io.rs     the same, of its source file
//! ```

use regex::{Regex, RegexBuilder};

use crate::model::Figures;

/// What makes a text a regular expression, if it can be read as one.
const META: &[char] = &['\\', '.', '+', '*', '?', '(', ')', '|', '[', ']', '{', '}', '^', '$'];
/// Bytes that a regular expression may take when made ready to be used.
const MOST_BYTES: usize = 1 << 20;

/// A test that points pass or fail.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    text: String,
    of: Field,
    pattern: Pattern,
}

/// What of a point is looked at.
#[derive(Clone, Copy, Debug, Default)]
enum Field {
    #[default]
    Name,
    Thread,
    File,
}

#[derive(Clone, Debug, Default)]
enum Pattern {
    #[default]
    Anything,
    Part {
        text: String,
        case_counts: bool,
    },
    Regex(Regex),
}

impl Filter {
    /// Reads what the user typed. An error says what is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        let (of, rest) = if let Some(rest) = text.strip_prefix("thread:") {
            (Field::Thread, rest)
        } else if let Some(rest) = text.strip_prefix("file:") {
            (Field::File, rest)
        } else {
            (Field::Name, text)
        };
        Ok(Self { text: text.to_owned(), of, pattern: Pattern::new(rest)? })
    }

    /// As it was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it may hide anything.
    pub fn is_on(&self) -> bool {
        !matches!(self.pattern, Pattern::Anything)
    }

    /// Whether a point passes.
    pub fn admits(&self, figures: &Figures) -> bool {
        let pattern = &self.pattern;
        match (pattern, self.of) {
            (Pattern::Anything, _) => true,
            (_, Field::Name) if figures.point().name.is_empty() => pattern.finds(&figures.name()),
            (_, Field::Name) => pattern.finds(&figures.point().name),
            (_, Field::File) => pattern.finds(&figures.point().file),
            (_, Field::Thread) => {
                figures.lanes().any(|lane| lane.lane.is_some_and(|lane| pattern.finds(&lane.name)))
            }
        }
    }
}

impl Pattern {
    fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::Anything);
        }
        if let Some(inner) = text.strip_prefix('/') {
            let inner = inner.strip_suffix('/').unwrap_or(inner);
            // Typed as far as the first slash, it says nothing yet.
            return if inner.is_empty() { Ok(Self::Anything) } else { regex(inner) };
        }
        if text.contains(META)
            && let Ok(pattern) = regex(text)
        {
            return Ok(pattern);
        }
        let case_counts = case_counts(text);
        let text = if case_counts { text.to_owned() } else { text.to_lowercase() };
        Ok(Self::Part { text, case_counts })
    }

    fn finds(&self, text: &str) -> bool {
        match self {
            Self::Anything => true,
            Self::Part { text: part, case_counts: true } => text.contains(part),
            Self::Part { text: part, case_counts: false } => text.to_lowercase().contains(part),
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

fn regex(text: &str) -> Result<Pattern, String> {
    let built = RegexBuilder::new(text)
        .case_insensitive(!case_counts(text))
        .size_limit(MOST_BYTES)
        .dfa_size_limit(MOST_BYTES)
        .build();
    // The crate draws the place over several lines; the last one says it.
    built.map(Pattern::Regex).map_err(|error| {
        let error = error.to_string();
        let last = error.lines().last().unwrap_or_default().trim();
        last.strip_prefix("error: ").unwrap_or(last).to_owned()
    })
}

/// Whoever takes the trouble of a capital means it. `\S` and the like are none.
fn case_counts(text: &str) -> bool {
    let mut before = ' ';
    text.chars().any(|c| {
        let counts = c.is_uppercase() && before != '\\';
        before = if before == '\\' { ' ' } else { c };
        counts
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;

    fn admitted(text: &str) -> Vec<u32> {
        let (mut source, mut model) = (Synthetic::new(), Model::default());
        source.snapshot_mut().points[8].name.clear();
        source.snapshot_mut().points[7].file = "src/net/Wait.rs".into();
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
            // No regular expression, and no point's name either.
            ("io(", vec![]),
            ("#8", vec![8]),
            ("thread:pack", vec![4, 5, 7]),
            ("thread:^(main|x)$", vec![1, 3]),
            ("file:net", vec![7]),
            ("file:wait", vec![7]),
            ("file:/WAIT/", vec![]),
            ("file:work", vec![1, 2, 3, 4, 5, 6, 8]),
        ] {
            assert_eq!(admitted(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_expression_is_said_in_one_line() {
        for (text, part) in [("/io(", "unclosed group"), ("/a{9999}{9999}/", "size limit")] {
            let error = Filter::new(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}

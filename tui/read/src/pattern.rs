//! Patterns of names of points, threads, files and processes, used wherever the user names one: in
//! the filter, in commands, in `--name`.
//!
//! ```text
//! parse          names that contain this text; case does not count
//! Parse          names that contain this text; case counts, since the text has a capital
//! io.*  wait?    a pattern for the whole name: * is any text, and ? one character
//! ^io\.|crc$     another valid regular expression: names that match or contain it
//! /parse a/      always a regular expression; it may contain blanks
//! "parse a"      exactly this name
//! ```

use std::ops::Range;

use regex_lite::{Regex, RegexBuilder};

/// Characters that make a text a regular expression, if it can be parsed as one.
const META: &[char] = &['\\', '.', '+', '*', '?', '(', ')', '|', '[', ']', '{', '}', '^', '$'];
/// Maximum size of a compiled regular expression, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// A test of names.
#[derive(Clone, Debug)]
pub enum NamePattern {
    /// Every name.
    Anything,
    /// Exactly this name.
    Whole(String),
    /// Names that contain this text.
    Part {
        /// The text, in lower case if case does not count.
        text: String,
        /// Whether upper and lower case differ.
        case_counts: bool,
    },
    /// Names that a regular expression matches, or that contain the typed text.
    Regex(Regex, String),
}

impl NamePattern {
    /// Parses a pattern that the user has typed.
    ///
    /// # Errors
    ///
    /// If the text must be an expression and is not a valid one. The error has one line.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::Anything);
        }
        if let Some(inner) = text.strip_prefix('"') {
            return Ok(match inner.strip_suffix('"') {
                Some(whole) if !whole.is_empty() => Self::Whole(whole.to_owned()),
                _ if inner.is_empty() || inner == "\"" => Self::Anything,
                // The closing quote is still missing.
                _ => Self::Part { text: inner.to_owned(), case_counts: true },
            });
        }
        if let Some(inner) = text.strip_prefix('/') {
            let inner = inner.strip_suffix('/').unwrap_or(inner);
            // With only the opening slash typed, the pattern matches anything.
            return if inner.is_empty() { Ok(Self::Anything) } else { regex(inner, inner) };
        }
        if let Some(glob) = glob(text) {
            return regex(&glob, text);
        }
        if text.contains(META)
            && let Ok(pattern) = regex(text, text)
        {
            return Ok(pattern);
        }
        let case_counts = case_counts(text);
        let text = if case_counts { text.to_owned() } else { text.to_lowercase() };
        Ok(Self::Part { text, case_counts })
    }

    /// Whether the pattern matches a name.
    pub fn finds(&self, name: &str) -> bool {
        match self {
            Self::Anything => true,
            Self::Whole(whole) => name == whole,
            Self::Part { text, case_counts: true } => name.contains(text),
            Self::Part { text, case_counts: false } => name.to_lowercase().contains(text),
            Self::Regex(regex, text) => regex.is_match(name) || name.contains(text),
        }
    }

    /// The parts of a name that the pattern matches, in bytes. Empty if the pattern matches every
    /// name.
    pub fn parts(&self, name: &str) -> Vec<Range<usize>> {
        let literal = |text: &str| -> Vec<Range<usize>> {
            let found = name.match_indices(text).filter(|(_, found)| !found.is_empty());
            found.map(|(start, found)| start..start + found.len()).collect()
        };
        match self {
            Self::Anything => Vec::new(),
            Self::Whole(whole) if name == whole => std::iter::once(0..name.len()).collect(),
            Self::Whole(_) => Vec::new(),
            Self::Part { text, case_counts: true } => literal(text),
            Self::Part { text, case_counts: false } => parts_in_any_case(name, text),
            Self::Regex(regex, text) => {
                let found = regex.find_iter(name).map(|found| found.range());
                let found: Vec<_> = found.filter(|part| !part.is_empty()).collect();
                if found.is_empty() { literal(text) } else { found }
            }
        }
    }

    /// Whether this text matches the name of a process. An invalid expression is searched for
    /// literally.
    pub fn means(text: &str, name: &str) -> bool {
        Self::new(text).map_or_else(|_| name.contains(text), |pattern| pattern.finds(name))
    }
}

/// The parts of a name that are a text in lower case.
fn parts_in_any_case(name: &str, text: &str) -> Vec<Range<usize>> {
    let mut lower = String::with_capacity(name.len());
    // The character of the name that each byte of `lower` is from: lower case may be longer.
    let mut origins = Vec::with_capacity(name.len());
    for (start, c) in name.char_indices() {
        lower.extend(c.to_lowercase());
        origins.resize(lower.len(), start..start + c.len_utf8());
    }
    let part = |(start, found): (usize, &str)| {
        let last = (start + found.len()).checked_sub(1)?;
        Some(origins.get(start)?.start..origins.get(last)?.end)
    };
    lower.match_indices(text).filter_map(part).collect()
}

/// The regular expression for a pattern of a whole name with `*` and `?`, as in PFP_ENABLE. `None`
/// for other texts, such as `.*crc`.
fn glob(text: &str) -> Option<String> {
    let is_other = |c: char| META.contains(&c) && !"*?.{}".contains(c);
    if !text.contains(['*', '?']) || text.starts_with('.') || text.contains(is_other) {
        return None;
    }
    let mut pattern = String::from("(?s)^");
    for c in text.chars() {
        match c {
            '*' => pattern.push_str(".*"),
            '?' => pattern.push('.'),
            c => pattern.push_str(&regex_lite::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    Some(pattern + "$")
}

/// Compiles a regular expression; the typed text decides whether case counts.
fn regex(pattern: &str, text: &str) -> Result<NamePattern, String> {
    let built = RegexBuilder::new(pattern)
        .case_insensitive(!case_counts(text))
        .size_limit(MAX_BYTES)
        .build();
    // The crate's error shows the position over several lines; the last line has the message.
    built.map(|regex| NamePattern::Regex(regex, text.to_owned())).map_err(|error| {
        let error = error.to_string();
        let last = error.lines().last().unwrap_or_default().trim();
        last.strip_prefix("error: ").unwrap_or(last).to_owned()
    })
}

/// Whether the text has a capital that is not part of an escape such as `\S`.
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

    #[test]
    fn names_are_found_by_parts_patterns_and_expressions() {
        for (text, found, other) in [
            ("io.*", &["io.", "io.read", "Io.read"][..], &["iox", "my io.read"][..]),
            ("*", &["", "a b", "#3"], &[]),
            ("#3", &["#3", "#33"], &["3"]),
            ("p?rse", &["parse", "pärse"], &["prse", "paarse"]),
            ("*{ecs::w*}", &["system{ecs::walk}"], &["ecs::walk", "system{ecs::walk} more"]),
            ("^a{2}.*$", &["aab"], &["ab", "a{2}"]),
            ("*tail*end", &["tailend", "a tail and an end"], &["tail", "tail end."]),
            ("Io*", &["Io.read"], &["io.read"]),
            (".*crc", &["io.crc", "crc32"], &["io.read"]),
            ("^io|net$", &["io.x", "a.net"], &["my io", "net.wait"]),
            ("run(int)", &["run(int)", "runint"], &["run()"]),
            ("\"io.read\"", &["io.read"], &["io.read.x"]),
            ("/IO.r/", &["aIO.re"], &["io.re"]),
        ] {
            let pattern = NamePattern::new(text).unwrap();
            assert!(found.iter().all(|name| pattern.finds(name)), "{text}");
            assert!(!other.iter().any(|name| pattern.finds(name)), "{text}");
        }
        assert!(NamePattern::new("/io(/").unwrap_err().contains("open group"));
        assert!(NamePattern::means("/io(", "a/io(b"));
    }

    #[test]
    fn the_parts_that_are_found_have_their_places() {
        for (text, name, parts) in [
            ("", "io", &[][..]),
            ("*", "", &[]),
            ("io", "io.Io", &["io", "Io"]),
            ("Io", "io.Io", &["Io"]),
            ("ö", "GRÖẞE größe", &["Ö", "ö"]),
            // The lower case of this letter is longer than the letter.
            ("i", "aİbi", &["İ", "i"]),
            ("ße", "GRÖẞE", &["ẞE"]),
            ("i[ox]", "io.ix.iz", &["io", "ix"]),
            ("/b*/", "abbab", &["bb", "b"]),
            ("/io.r/", "aio.read", &["io.r"]),
            ("run(int)", "run(int)", &["run(int)"]),
            ("io.*", "io.read", &["io.read"]),
            ("\"io.read\"", "io.read", &["io.read"]),
            ("\"io.read\"", "io.read.x", &[]),
            ("\"io", "my io", &["io"]),
        ] {
            let found = NamePattern::new(text).unwrap().parts(name);
            let found: Vec<&str> = found.into_iter().map(|part| &name[part]).collect();
            assert_eq!(found, parts, "{text} in {name}");
        }
    }
}

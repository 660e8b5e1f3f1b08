//! `pfp-top doctor`: diagnoses the setup and suggests fixes.
//!
//! Each check examines one thing and returns [`CheckResult`]s. The doctor changes nothing, except
//! that it starts a small program and measures it, to test everything from end to end.

mod checks;
mod clocks;
mod one;
mod processes;

use std::fmt::Write;
use std::str::FromStr;

use anyhow::Result;
use serde::Serialize;

use super::output::{print, print_json};
use pfp_read::text::clean;

/// The exit status if something is wrong.
const PROBLEM: u8 = 1;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckVerdict {
    /// Everything works.
    Ok,
    /// Works, with something worth knowing.
    Note,
    /// Does not work.
    Problem,
}

impl CheckVerdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// A finding of a check, as one line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct CheckResult {
    verdict: CheckVerdict,
    /// The subject, in one word.
    about: &'static str,
    /// The finding itself.
    found: String,
    /// Advice; empty if nothing needs to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    advice: String,
}

impl CheckResult {
    fn new(verdict: CheckVerdict, about: &'static str, found: impl AsRef<str>) -> Self {
        // Names of programs and variables may contain anything.
        let found = clean(found.as_ref()).into_owned();
        Self { verdict, about, found, advice: String::new() }
    }

    fn ok(about: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(CheckVerdict::Ok, about, found)
    }

    fn note(about: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(CheckVerdict::Note, about, found)
    }

    fn problem(about: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(CheckVerdict::Problem, about, found)
    }

    fn advice(mut self, advice: impl AsRef<str>) -> Self {
        self.advice = clean(advice.as_ref()).into_owned();
        self
    }
}

/// The only thing to check, in more detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoctorTarget {
    /// How fast the counter and the core run, as measured and as reported.
    Clocks,
    /// One process.
    Process(u32),
}

impl FromStr for DoctorTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(pid) => Ok(Self::Process(pid)),
            Err(_) if text == "clocks" => Ok(Self::Clocks),
            Err(_) => Err("expected clocks, or a process id"),
        }
    }
}

/// Runs all checks, or one part. The exit status is 1 if there is a problem.
pub(super) fn run(part: Option<DoctorTarget>, json: bool) -> Result<u8> {
    let findings = match part {
        None => checks::all(),
        Some(DoctorTarget::Clocks) => clocks::all(),
        Some(DoctorTarget::Process(pid)) => one::all(pid),
    };
    match json {
        true => print_json(&findings)?,
        false => print(&in_words(&findings))?,
    };
    let is_wrong = findings.iter().any(|finding| finding.verdict == CheckVerdict::Problem);
    Ok(if is_wrong { PROBLEM } else { 0 })
}

fn in_words(findings: &[CheckResult]) -> String {
    let mut text = String::new();
    let mut about = "";
    for finding in findings {
        let head = if finding.about == about { "" } else { finding.about };
        about = finding.about;
        let word = finding.verdict.word();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{head:<11} {word:<8} {}", finding.found);
        if !finding.advice.is_empty() {
            let _ = writeln!(text, "{:<20} -> {}", "", finding.advice);
        }
    }
    let count = |verdict| findings.iter().filter(|f| f.verdict == verdict).count();
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let (problems, notes) = (count(CheckVerdict::Problem), count(CheckVerdict::Note));
    let _ =
        writeln!(text, "\n{problems} problem{}, {notes} note{}", plural(problems), plural(notes));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_printed_as_text_and_as_json() {
        let findings = [
            CheckResult::ok("terminal", "xterm"),
            CheckResult::problem("terminal", "a\x1b[2Jb").advice("do this"),
        ];
        let text = in_words(&findings);
        assert!(text.starts_with("terminal    ok       xterm\n"), "{text}");
        assert!(text.contains("\n            problem  a"), "said once what it is about:\n{text}");
        assert!(text.contains("-> do this\n") && text.ends_with("1 problem, 0 notes\n"), "{text}");
        assert!(!text.contains('\x1b'), "{text:?}");
        let json = serde_json::to_string(&findings).unwrap();
        assert!(json.contains(r#""verdict":"problem""#) && json.contains(r#""advice":"do this""#));
    }
}

//! An exact comparison as text, as JSON and as Markdown.

use std::fmt::Write;

use serde::Serialize;

use super::{CountOf, ExactComparison, ExactRow};
use crate::compare::markdown::escape;
use pfp_read::text::counted;
use pfp_read::units;

/// Maximum number of figures in the text that vary between the baseline runs. JSON has all of them.
const VARYING: usize = 20;
/// Maximum number of names of a call path in a sentence, counted from its end.
const PATH: usize = 8;

/// The differences, one a line, then the summary.
pub fn render(comparison: &ExactComparison) -> String {
    let ExactComparison { runs_before, runs_now, differences, varying, notes, .. } = comparison;
    let word = if comparison.passed() { "passed" } else { "FAILED" };
    let mut out = format!(
        "gate {word}: {}; {runs_before} and {runs_now} runs; calls, callers and allocations as \
         numbers\n",
        counted(differences.len(), "difference")
    );
    for line in differences.iter().map(sentence) {
        out += &(line + "\n");
    }
    if !varying.is_empty() {
        let shown = varying.iter().take(VARYING).map(varies);
        let mut shown: Vec<String> = shown.collect();
        if varying.len() > VARYING {
            shown.push(format!("{} others", varying.len() - VARYING));
        }
        // Writing to a string cannot fail.
        let _ = writeln!(out, "varies between the baseline runs: {}", shown.join(", "));
    }
    for note in notes {
        out += &format!("{note}\n");
    }
    out + &summary(comparison) + "\n"
}

/// The comparison as Markdown for a pull request.
pub fn markdown(comparison: &ExactComparison) -> String {
    let ExactComparison { runs_before, runs_now, differences, varying, notes, .. } = comparison;
    let mut out = format!("### pfp: {}\n\n", summary(comparison));
    let list = |lines: Vec<String>| -> String {
        lines.iter().map(|line| format!("- {}\n", escape(line))).collect::<String>() + "\n"
    };
    if !differences.is_empty() {
        out += &list(differences.iter().map(sentence).collect());
    }
    if !varying.is_empty() {
        let _ = write!(
            out,
            "<details><summary>{}</summary>\n\n{}</details>\n\n",
            varying_in_words(varying.len()),
            list(varying.iter().map(varies).collect())
        );
    }
    if !notes.is_empty() {
        out += &list(notes.clone());
    }
    let _ = writeln!(
        out,
        "{runs_before} and {runs_now} runs; calls, callers and allocations as numbers."
    );
    out
}

/// The last line: how many figures are equal, differ and vary.
fn summary(comparison: &ExactComparison) -> String {
    let ExactComparison { points, equal, differences, varying, .. } = comparison;
    let differ = if differences.len() == 1 { "differs" } else { "differ" };
    format!(
        "{} of {} equal, {} {differ}, {}",
        counted(*equal, "figure"),
        counted(*points, "point"),
        differences.len(),
        varying_in_words(varying.len())
    )
}

fn varying_in_words(number: usize) -> String {
    let vary = if number == 1 { "varies" } else { "vary" };
    format!("{number} {vary} between the baseline runs")
}

/// A difference in a sentence: `parse allocates 3 times per call, 2 before`.
pub fn sentence(row: &ExactRow) -> String {
    let subject = subject(row);
    let (before, now) = (Range::of(&row.before), Range::of(&row.now));
    let in_runs = if now.is_one() { "" } else { " in the new runs" };
    let counts_calls = matches!(row.of, CountOf::Calls | CountOf::CallsByCaller);
    let mut text = match row.of {
        _ if counts_calls && before.most == 0 && now.least > 0 => {
            format!("{subject} is new: called {}{in_runs}", now.times())
        }
        _ if counts_calls && now.most == 0 => {
            format!("{subject} is gone: called {} before", before.times())
        }
        CountOf::Calls => {
            format!("{subject} was called {}{in_runs}, {} before", now.times(), before.text())
        }
        CountOf::CallsByCaller => {
            format!("{subject}: called {}{in_runs}, {} before", now.times(), before.text())
        }
        CountOf::CallsWithAllocs => format!(
            "{subject} counted allocations in {} of its calls{in_runs}, {} before",
            now.text(),
            before.text()
        ),
        CountOf::Allocs | CountOf::AllocBytes => {
            let (now, before, per) = match per_call(row, now, before) {
                Some((now, before)) => (now, before, "per call"),
                None => (now.text(), before.text(), "in all"),
            };
            let now = if row.of == CountOf::Allocs { times(&now) } else { now + " B" };
            format!("{subject} allocates {now} {per}{in_runs}, {before} before")
        }
    };
    if !row.path.is_empty() {
        let cut = row.path.len().saturating_sub(PATH);
        let first = if cut > 0 { "... -> " } else { "" };
        text += &format!(" ({first}{})", row.path[cut..].join(" -> "));
    }
    text
}

/// The subject of a sentence: `parse`, `parse -> lookup`, `lookup without a caller`.
fn subject(row: &ExactRow) -> String {
    match (row.of, &row.caller) {
        (CountOf::CallsByCaller, Some(caller)) => format!("{caller} -> {}", row.point),
        (CountOf::CallsByCaller, None) => format!("{} without a caller", row.point),
        _ => row.point.clone(),
    }
}

/// A figure that varies between the baseline runs: `calls of parse (5 to 7)`.
fn varies(row: &ExactRow) -> String {
    let what = match row.of {
        CountOf::Calls | CountOf::CallsByCaller => "calls",
        CountOf::CallsWithAllocs => "calls with allocations",
        CountOf::Allocs => "allocations",
        CountOf::AllocBytes => "allocated bytes",
    };
    format!("{what} of {} ({})", subject(row), Range::of(&row.before).text())
}

/// The numbers per call, now and before. `None` if the number of calls varies, or if the numbers
/// per call are the same in two decimals.
fn per_call(row: &ExactRow, now: Range, before: Range) -> Option<(String, String)> {
    let [calls_before, calls_now] = row.calls.filter(|calls| !calls.contains(&0))?;
    let (now, before) = (now.divided(calls_now), before.divided(calls_before));
    let is_same = |of: fn(&[f64; 2]) -> f64| hundredths(of(&now)) == hundredths(of(&before));
    (!(is_same(|it| it[0]) && is_same(|it| it[1])))
        .then(|| (divided_text(now), divided_text(before)))
}

fn hundredths(number: f64) -> u64 {
    (number * 100.0).round() as u64
}

fn divided_text([least, most]: [f64; 2]) -> String {
    let text = |number: f64| match hundredths(number) {
        whole if number.fract() == 0.0 => units::grouped(whole / 100),
        parts => format!("{}.{:02}", units::grouped(parts / 100), parts % 100),
    };
    between(text(least), text(most))
}

fn between(least: String, most: String) -> String {
    if least == most { least } else { format!("{least} to {most}") }
}

/// `1 time`, `5 times`.
fn times(number: &str) -> String {
    format!("{number} time{}", if number == "1" { "" } else { "s" })
}

/// The numbers of the runs of one side.
#[derive(Clone, Copy)]
struct Range {
    least: u64,
    most: u64,
}

impl Range {
    fn of(runs: &[u64]) -> Self {
        let least = runs.iter().copied().min().unwrap_or(0);
        Self { least, most: runs.iter().copied().max().unwrap_or(0) }
    }

    fn is_one(self) -> bool {
        self.least == self.most
    }

    fn text(self) -> String {
        between(units::grouped(self.least), units::grouped(self.most))
    }

    fn times(self) -> String {
        times(&self.text())
    }

    fn divided(self, calls: u64) -> [f64; 2] {
        [self.least, self.most].map(|number| number as f64 / calls as f64)
    }
}

#[derive(Serialize)]
struct ExactReport<'a> {
    format: &'static str,
    version: u32,
    passed: bool,
    runs_before: usize,
    runs_now: usize,
    points: usize,
    equal: usize,
    differences: Vec<ReportRow<'a>>,
    varying: Vec<ReportRow<'a>>,
    notes: &'a [String],
}

/// A figure, with its number in each run. Only `calls_by_caller` has a caller; it is null for calls
/// without a caller.
#[derive(Serialize)]
struct ReportRow<'a> {
    point: &'a str,
    figure: CountOf,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<Option<&'a str>>,
    before: &'a [u64],
    now: &'a [u64],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    path: &'a [String],
    text: String,
}

impl<'a> ReportRow<'a> {
    fn of(row: &'a ExactRow, text: String) -> Self {
        let is_edge = row.of == CountOf::CallsByCaller;
        Self {
            point: &row.point,
            figure: row.of,
            caller: is_edge.then_some(row.caller.as_deref()),
            before: &row.before,
            now: &row.now,
            path: &row.path,
            text,
        }
    }
}

/// The comparison as JSON, with a line break at its end.
pub fn json(comparison: &ExactComparison) -> serde_json::Result<String> {
    let report = ExactReport {
        format: "pfp-gate-exact",
        version: 1,
        passed: comparison.passed(),
        runs_before: comparison.runs_before,
        runs_now: comparison.runs_now,
        points: comparison.points,
        equal: comparison.equal,
        differences: report_rows(&comparison.differences, sentence),
        varying: report_rows(&comparison.varying, varies),
        notes: &comparison.notes,
    };
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn report_rows(rows: &[ExactRow], text: fn(&ExactRow) -> String) -> Vec<ReportRow<'_>> {
    rows.iter().map(|row| ReportRow::of(row, text(row))).collect()
}

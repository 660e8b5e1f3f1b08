//! A comparison as Markdown for a pull request: the changes of times, calls and loads, with
//! everything else folded away below.

use std::fmt::Write;

use super::columns::caption;
use super::effect::ConfidenceInterval;
use super::volume::{self, Volume};
use super::{Baseline, Comparison, DiffRow, TEST, Verdict, WaitChange};
use pfp_read::units::{self, Scale, Unit};

/// Maximum number of reasons of waits.
const WAITS: usize = 10;
/// Verdicts on times whose rows are not folded away.
const SHOWN: [Verdict; 4] =
    [Verdict::Slower, Verdict::SlowerTail, Verdict::Faster, Verdict::FasterTail];

/// The comparison as a table for a pull request, with its verdicts, effect sizes and
/// the name of the test.
pub fn markdown(baseline: &Baseline, comparison: &Comparison) -> String {
    let scale = Scale { ticks_per_second: comparison.ticks_per_second, unit: Unit::Time };
    let count = |verdicts: &[Verdict]| {
        comparison.rows.iter().filter(|row| verdicts.contains(&row.verdict)).count()
    };
    let slower = count(&[Verdict::Slower, Verdict::SlowerTail]);
    let faster = count(&[Verdict::Faster, Verdict::FasterTail]);
    let volumes = |of: fn(&DiffRow) -> Volume, volume: Volume| {
        comparison.rows.iter().filter(|row| of(row) == volume).count()
    };
    let is_alike = |row: &&DiffRow| row.verdict == Verdict::NoDifference && !is_shown(row);
    let mut out = format!(
        "### pfp: {slower} slower, {faster} faster, {} with more calls, {} with fewer, {} with \
         more load, {} with less, {} of {} points without a difference\n\n",
        volumes(|row| row.calls, Volume::More),
        volumes(|row| row.calls, Volume::Less),
        volumes(|row| row.load, Volume::More),
        volumes(|row| row.load, Volume::Less),
        comparison.rows.iter().filter(is_alike).count(),
        comparison.rows.len()
    );
    let mut shown: Vec<&DiffRow> = comparison.rows.iter().filter(|row| is_shown(row)).collect();
    let rank =
        |row: &DiffRow| SHOWN.iter().position(|it| *it == row.verdict).unwrap_or(SHOWN.len());
    shown.sort_by_key(|row| rank(row));
    if !shown.is_empty() {
        out += &table(&shown, &scale);
        out.push('\n');
    }
    let rest: Vec<&DiffRow> = comparison.rows.iter().filter(|row| !is_shown(row)).collect();
    if !rest.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<details><summary>{} others</summary>\n\n{}\n</details>\n\n",
            rest.len(),
            table(&rest, &scale)
        );
    }
    if !comparison.waits.is_empty() {
        out += "| waits for | threads before | now |\n|---|---:|---:|\n";
        for WaitChange { name, before, now } in comparison.waits.iter().take(WAITS) {
            let _ = writeln!(out, "| {} | {before:.2} | {now:.2} |", code(name));
        }
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "{}. In brackets: 95 % intervals, of the error within these two runs. A: probability \
         that a measurement now takes longer than one before.",
        escape(&caption(baseline, Some(comparison), &format!("{TEST}; {}", volume::TEST)))
    );
    out
}

/// Whether a row is not folded away.
fn is_shown(row: &DiffRow) -> bool {
    SHOWN.contains(&row.verdict) || row.calls.differs() || row.load.differs()
}

fn table(rows: &[&DiffRow], scale: &Scale) -> String {
    let mut out = String::from(
        "| point | time | calls/s | load | median | now | change | mean | now | change | p99 | A |\n\
         |---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let ticks = |ticks: Option<f64>| ticks.map_or(units::NONE.into(), |ticks| scale.single(ticks));
    for row in rows {
        let strong = if SHOWN.contains(&row.verdict) { "**" } else { "" };
        let cells = [
            code(&row.name),
            format!("{strong}{}{strong}", row.verdict.words()),
            with_change(row.calls, row.rate_change().map(units::change)),
            with_change(row.load, row.load_change().map(units::points)),
            ticks(row.before.quantile(0.5)),
            ticks(row.since.quantile(0.5)),
            change(row.quantile_change(0.5), row.quantile_interval(0.5)),
            ticks(row.before.mean()),
            ticks(row.since.mean()),
            change(row.mean_change(), row.mean_interval()),
            change(row.quantile_change(0.99), None),
            match (row.superiority, row.superiority_interval()) {
                (Some(a), Some(i)) => format!("{a:.2} ({:.2} to {:.2})", i.low, i.high),
                _ => units::NONE.into(),
            },
        ];
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// A verdict with the change that it refers to.
fn with_change(volume: Volume, change: Option<String>) -> String {
    let strong = if volume.differs() { "**" } else { "" };
    let change = change.map_or(String::new(), |change| format!(" ({change})"));
    format!("{strong}{}{strong}{change}", volume.words())
}

fn change(change: Option<f64>, interval: Option<ConfidenceInterval>) -> String {
    let share = |share: f64| format!("{:+.1}%", share * 100.0);
    match (change.filter(|change| change.is_finite()), interval) {
        (Some(change), Some(i)) => {
            format!("{} ({} to {})", share(change), share(i.low), share(i.high))
        }
        (Some(change), None) => share(change),
        (None, _) => units::NONE.into(),
    }
}

/// A name as code in a table cell. The fence has more backquotes than any run of them in the name.
/// A bar is escaped, since it would end the cell even inside code.
fn code(name: &str) -> String {
    let longest = name.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let blank = if longest > 0 { " " } else { "" };
    format!("{fence}{blank}{}{blank}{fence}", name.replace('|', "\\|"))
}

/// Escapes markup in names in running text.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::twice_as_long;
    use pfp_read::source::synthetic::Synthetic;

    #[test]
    fn a_pull_request_gets_a_table_with_verdicts_effects_and_the_test() {
        let mut source = Synthetic::new();
        source.snapshot_mut().points[1].name = "a|b`c".into();
        source.snapshot_mut().process.name = "my_<b>app".into();
        let (baseline, comparison) = twice_as_long(source);
        let text = markdown(&baseline, &comparison);
        let slower = comparison.rows.iter().filter(|row| row.verdict == Verdict::Slower).count();
        assert!(
            slower > 3 && text.starts_with(&format!("### pfp: {slower} slower, 0 faster")),
            "{text}"
        );
        // Every row of a table has as many columns as its head, even with bars in names.
        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert!(lines.iter().all(|line| bars(line) == 13), "{text}");
        assert!(text.contains("| `` a\\|b`c `` | **slower** |"), "{text}");
        let line = lines.iter().find(|line| line.contains("`io.read`")).unwrap();
        assert!(line.contains("+100.") || line.contains("+99."), "{line}");
        assert_eq!(line.matches(" to ").count(), 3, "{line}");
        for said in [TEST, "my\\_\\<b\\>app", "a.json"] {
            assert!(text.contains(said), "{said} in {text}");
        }
    }
}

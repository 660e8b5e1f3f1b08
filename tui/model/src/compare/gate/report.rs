//! A gate's findings, as text and as JSON.

use std::fmt::Write;

use serde::Serialize;

use super::{GateFinding, GateRow, Judgement, Metric, TEST};
use pfp_read::text;
use pfp_read::units;

/// Maximum length of a name; longer ones are cut.
const NAME_MAX: usize = 48;

/// The findings in a line, then the judged metrics, the worst first.
pub fn render(judgement: &Judgement) -> String {
    let Judgement { rows, runs_before, runs_now, too_few, gone, new, assumed } = judgement;
    let count = |finding| judgement.count(finding);
    let word = if count(GateFinding::Failed) > 0 { "FAILED" } else { "passed" };
    let mut out = format!(
        "gate {word}: {} failed, {} unsure, {} fine; {runs_before} and {runs_now} runs; {TEST}\n",
        count(GateFinding::Failed),
        count(GateFinding::Unsure),
        count(GateFinding::Fine),
    );
    if let Some(deviation) = assumed {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "one run per side does not show how much runs vary: assuming {}; add runs, or pass \
             --deviation",
            share(*deviation).trim_start_matches('+')
        );
    }
    let name_width = rows.iter().map(|row| text::width(&row.name)).max().unwrap_or(0);
    let name_width = name_width.clamp("Name".len(), NAME_MAX);
    let _ = writeln!(
        out,
        "{:<7} {} {:<10} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "Gate",
        text::fit("Name", name_width, '~'),
        "Limit",
        "Before",
        "Now",
        "Change",
        "above",
        "below",
        "Runs+-",
        "p"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "{:<7} {} {:<10} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
            row.finding.word(),
            text::fit(&row.name, name_width, '~'),
            row.limit.text(),
            figure(row, row.before),
            figure(row, row.now),
            share(row.change),
            share(row.low),
            share(row.high),
            share(row.deviation).trim_start_matches('+'),
            probability(row.p),
        );
    }
    if let Some(common) = judgement.common() {
        let _ = writeln!(
            out,
            "most points changed by {} together: the machine or the whole program changed; \
             alternate old and new runs to find out which",
            share(common)
        );
    }
    if count(GateFinding::Unsure) > 0 {
        let _ = writeln!(
            out,
            "unsure: cannot rule out a regression as large as the limit; add \
                               runs"
        );
    }
    let listed = |names: &[String]| names.join(", ");
    for (what, names) in [("only before", gone), ("only now", new)] {
        if !names.is_empty() {
            let _ = writeln!(out, "{what}: {}", listed(names));
        }
    }
    if !too_few.is_empty() {
        let names: Vec<_> =
            too_few.iter().map(|it| format!("{} {}", it.name, it.metric.word())).collect();
        let _ = writeln!(out, "too few measurements: {}", listed(&names));
    }
    out
}

fn figure(row: &GateRow, value: f64) -> String {
    match row.limit.metric {
        metric if metric.is_time() => units::duration(value),
        Metric::Load => units::percent(value),
        _ => units::si(value),
    }
}

fn share(share: f64) -> String {
    match share * 100.0 {
        percent if !percent.is_finite() || percent.abs() >= 99_999.5 => ">9999%".into(),
        percent if percent.abs() < 9.995 => format!("{percent:+.2}%"),
        percent if percent.abs() < 99.95 => format!("{percent:+.1}%"),
        percent => format!("{percent:+.0}%"),
    }
}

fn probability(p: f64) -> String {
    if p < 0.0001 { "<0.0001".into() } else { format!("{p:.4}") }
}

#[derive(Serialize)]
struct GateReport<'a> {
    format: &'static str,
    version: u32,
    test: &'static str,
    passed: bool,
    failed: usize,
    unsure: usize,
    #[serde(flatten)]
    judgement: &'a Judgement,
}

/// The findings as JSON, with a line break at its end. Times are seconds, loads CPUs; changes and
/// deviations are shares. The assumed deviation is null where several runs show it.
pub fn json(judgement: &Judgement) -> serde_json::Result<String> {
    let failed = judgement.count(GateFinding::Failed);
    let report = GateReport {
        format: "pfp-gate",
        version: 1,
        test: TEST,
        passed: failed == 0,
        failed,
        unsure: judgement.count(GateFinding::Unsure),
        judgement,
    };
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

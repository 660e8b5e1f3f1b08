//! A comparison as text, as JSON and as Markdown, for scripts, logs and pull requests.

use serde::Serialize;

use super::columns::{TABLE, caption, is_offered};
use super::effect::ConfidenceInterval;
use super::{Baseline, Comparison, DiffRow, TEST, Verdict, WaitChange, volume, waits};
use crate::PointWindow;
use pfp_read::units::{Scale, Unit};

pub use super::markdown::markdown;

/// Maximum length of a name; longer ones are cut.
const NAME_MAX: usize = 48;

/// The comparison as text: a line about both sides, and a table of the points, as on the screen.
pub fn render(baseline: &Baseline, comparison: &Comparison) -> String {
    let scale = Scale { ticks_per_second: comparison.ticks_per_second, unit: Unit::Time };
    let mut text = caption(baseline, Some(comparison), &format!("{TEST}; {}", volume::TEST))
        + "\n"
        + &TABLE.text_offered(&comparison.rows, &scale, NAME_MAX, |key| {
            is_offered(key, &comparison.rows)
        });
    if !comparison.waits.is_empty() {
        text += "\n";
        text += &waits::TABLE.text(&comparison.waits, &scale, NAME_MAX);
    }
    text
}

/// A comparison for programs. Times are nanoseconds; unknown figures are null.
#[derive(Serialize)]
struct DiffReport<'a> {
    format: &'static str,
    version: u32,
    test: &'static str,
    volume_test: &'static str,
    baseline_seconds: f64,
    seconds: f64,
    only_in_baseline: usize,
    points: Vec<ReportPoint<'a>>,
    /// Left out unless both sides were sampled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<ReportWait<'a>>,
}

/// Numbers of threads that waited, on average.
#[derive(Serialize)]
struct ReportWait<'a> {
    name: &'a str,
    before: f64,
    now: f64,
}

#[derive(Serialize)]
struct ReportPoint<'a> {
    name: &'a str,
    /// Null for a point that only the baseline has.
    id: Option<u32>,
    verdict: &'static str,
    superiority: Option<f64>,
    /// The 95 % confidence interval of `superiority`, which covers only the error of sampling. The
    /// fields `..._95` below are such intervals of relative changes.
    superiority_95: Option<[f64; 2]>,
    mean_change: Option<f64>,
    mean_change_95: Option<[f64; 2]>,
    p50_change: Option<f64>,
    p50_change_95: Option<[f64; 2]>,
    /// `more`, `less`, `same` or `unsure`. `calls_change` is relative.
    calls_verdict: &'static str,
    calls_change: Option<f64>,
    /// `more`, `less`, `same` or `unsure`. `load_change` is in CPUs.
    load_verdict: &'static str,
    load_change: Option<f64>,
    before: ReportFigures,
    now: ReportFigures,
}

#[derive(Serialize)]
struct ReportFigures {
    count: u64,
    per_second: Option<f64>,
    load: Option<f64>,
    mean_ns: Option<f64>,
    p50_ns: Option<f64>,
    p90_ns: Option<f64>,
    p99_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocs_per_call: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alloc_bytes_per_call: Option<f64>,
}

/// The comparison as JSON, with a line break at its end.
pub fn json(baseline: &Baseline, comparison: &Comparison) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&report(baseline, comparison))? + "\n")
}

/// The comparison as one line of JSON.
pub fn json_line(baseline: &Baseline, comparison: &Comparison) -> serde_json::Result<String> {
    Ok(serde_json::to_string(&report(baseline, comparison))? + "\n")
}

fn bounds(interval: Option<ConfidenceInterval>) -> Option<[f64; 2]> {
    interval.map(|interval| [interval.low, interval.high])
}

fn report<'a>(baseline: &Baseline, comparison: &'a Comparison) -> DiffReport<'a> {
    let ns = |ticks: Option<f64>| ticks.map(|ticks| ticks / comparison.ticks_per_second * 1e9);
    let figures = |window: &PointWindow| ReportFigures {
        count: window.count,
        per_second: window.rate(),
        load: window.load(),
        mean_ns: ns(window.mean()),
        p50_ns: ns(window.quantile(0.5)),
        p90_ns: ns(window.quantile(0.9)),
        p99_ns: ns(window.quantile(0.99)),
        allocs_per_call: window.allocs_per_call(),
        alloc_bytes_per_call: window.alloc_bytes_per_call(),
    };
    let points = comparison.rows.iter().map(|row| ReportPoint {
        name: &row.name,
        id: (row.verdict != Verdict::Gone).then_some(row.id),
        verdict: row.verdict.words(),
        superiority: row.superiority,
        superiority_95: bounds(row.superiority_interval()),
        mean_change: row.mean_change(),
        mean_change_95: bounds(row.mean_interval()),
        p50_change: row.quantile_change(0.5),
        p50_change_95: bounds(row.quantile_interval(0.5)),
        calls_verdict: row.calls.words(),
        calls_change: row.rate_change(),
        load_verdict: row.load.words(),
        load_change: row.load_change(),
        before: figures(&row.before),
        now: figures(&row.since),
    });
    DiffReport {
        format: "pfp-diff",
        version: 1,
        test: TEST,
        volume_test: volume::TEST,
        baseline_seconds: baseline.seconds(),
        seconds: comparison.seconds,
        only_in_baseline: comparison.gone,
        points: points.collect(),
        waits: comparison
            .waits
            .iter()
            .map(|WaitChange { name, before, now }| ReportWait { name, before: *before, now: *now })
            .collect(),
    }
}

/// The points that have become slower by more than this share: by mean or median or, if only the
/// tail grew, by the 99th percentile.
pub fn slower_than(comparison: &Comparison, share: f64) -> impl Iterator<Item = &DiffRow> {
    comparison.rows.iter().filter(move |row| match row.verdict {
        Verdict::Slower => [row.mean_change(), row.quantile_change(0.5)]
            .into_iter()
            .flatten()
            .any(|change| change > share),
        Verdict::SlowerTail => row.quantile_change(0.99).is_some_and(|change| change > share),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::twice_as_long;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;
    use pfp_read::text;

    fn comparison() -> (Baseline, Comparison) {
        twice_as_long(Synthetic::new())
    }

    #[test]
    fn every_point_has_its_line_and_the_columns_stand_straight() {
        let (baseline, comparison) = comparison();
        let text = render(&baseline, &comparison);
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].starts_with(
                "a.json: my_app[4711], 12m49s long; now: 12m50s of my_app[4711]; Mann"
            ),
            "{text}"
        );
        assert!(lines[0].contains("Mann-Whitney"), "{text}");
        assert_eq!(lines.len(), 2 + comparison.rows.len());
        assert!(lines[1..].iter().all(|line| text::width(line) == lines[1].len()), "{text}");
        assert!(lines[2].contains(" slower "), "{text}");
    }

    #[test]
    fn json_has_the_figures_of_the_text() {
        let (baseline, comparison) = comparison();
        let json: serde_json::Value =
            serde_json::from_str(&json(&baseline, &comparison).unwrap()).unwrap();
        let points = json["points"].as_array().unwrap();
        assert_eq!(points.len(), comparison.rows.len());
        let parse = points.iter().find(|point| point["name"] == "io.parse").unwrap();
        assert_eq!(parse["verdict"], "slower");
        let mean = |window: &str| parse[window]["mean_ns"].as_f64().unwrap();
        assert!((mean("now") / mean("before") - 2.0).abs() < 0.1, "{parse}");
    }

    #[test]
    fn points_of_one_side_only_are_listed() {
        let mut source = Synthetic::new();
        source.poll().unwrap();
        let mut base = source.poll().unwrap();
        let mut other = base.clone();
        other.process.segment_id = "f".repeat(32);
        other.points.retain(|point| point.name != "io.read");
        base.points.retain(|point| point.name != "io.crc");
        let baseline = Baseline::of(base, None);
        let comparison = Comparison::new(&baseline, &other).unwrap();
        let text = render(&baseline, &comparison);
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("io.read").contains(" gone ") && line("io.crc").contains(" new "), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&json(&baseline, &comparison).unwrap()).unwrap();
        let points = json["points"].as_array().unwrap();
        let point = |name: &str| points.iter().find(|point| point["name"] == name).unwrap();
        assert_eq!(
            (&point("io.read")["verdict"], point("io.read")["id"].is_null()),
            (&"gone".into(), true)
        );
        assert_eq!(
            (&point("io.crc")["verdict"], &point("io.crc")["id"]),
            (&"new".into(), &3.into())
        );
    }

    #[test]
    fn only_points_slower_than_the_limit_count() {
        let (_, comparison) = comparison();
        let slower = |share| slower_than(&comparison, share).count();
        assert!(slower(0.5) > 3);
        assert_eq!(slower(1.5), 0);
    }
}

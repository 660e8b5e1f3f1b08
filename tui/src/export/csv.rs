//! All figures of every point as comma-separated values, RFC 4180: a line of
//! titles, then a row for each point, or for each point and thread.
//!
//! A title ends with its unit: `_ns` nanoseconds, `_ticks` ticks of the process's clock, exact;
//! `load` is the share of one CPU. A text that a spreadsheet would take for a formula begins with
//! an apostrophe ([`crate::text::cell`]). A missing figure is an empty field. Amounts are in one
//! field, `bytes=2400;flops=200`: sums, sums per second of exclusive time, and sums per second of
//! the clock. Rates and loads are the model's: for a file, or a single poll of a process, over its
//! whole life or since the point's reset.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

use super::subject::{Shown, Subject};
use crate::model::{Length, amounts, histogram};
use crate::snapshot::Stats;
use crate::text::{self, cell};

/// Declares a row, and the titles: the names of its fields.
macro_rules! row {
    ($($(#[$about:meta])* $field:ident: $type:ty,)*) => {
        #[derive(Debug, Serialize)]
        struct Row<'a> {
            $($(#[$about])* $field: $type,)*
        }

        const TITLES: &[&str] = &[$(stringify!($field),)*];
    };
}

row! {
    process: Cow<'a, str>,
    pid: u32,
    id: u32,
    point: Cow<'a, str>,
    file: Cow<'a, str>,
    line: u32,
    state: &'static str,
    lane: Option<u32>,
    tid: Option<u32>,
    thread: Option<Cow<'a, str>>,
    calls: u64,
    calls_per_second: Option<f64>,
    load: Option<f64>,
    /// None for wall-clock spans.
    exclusive_ns: Option<f64>,
    inclusive_ns: f64,
    off_cpu_ns: f64,
    switches: u64,
    min_ns: Option<f64>,
    mean_ns: Option<f64>,
    p50_ns: Option<f64>,
    p90_ns: Option<f64>,
    p99_ns: Option<f64>,
    p99_9_ns: Option<f64>,
    max_ns: Option<f64>,
    last_ns: Option<f64>,
    deviation_ns: Option<f64>,
    average_ns: Option<f64>,
    alpha: Option<f64>,
    resets: u32,
    exclusive_ticks: Option<u64>,
    inclusive_ticks: u64,
    off_cpu_ticks: u64,
    min_ticks: Option<u64>,
    max_ticks: Option<u64>,
    last_ticks: Option<u64>,
    squares_ticks2: u128,
    ticks_per_second: f64,
    amounts: String,
    amounts_per_cpu_second: String,
    amounts_per_second: String,
}

const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Writes the titles and the rows.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    rows(subject, out).map_err(|error| match error.into_kind() {
        // Unchanged: a writer into a pipe must see that nobody reads.
        ::csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    })
}

fn rows(subject: &Subject<'_>, out: &mut dyn Write) -> ::csv::Result<()> {
    // The titles are written even without rows.
    let mut writer = ::csv::WriterBuilder::new()
        .terminator(::csv::Terminator::CRLF)
        .has_headers(false)
        .from_writer(out);
    writer.write_record(TITLES)?;
    for shown in subject.points() {
        let (figures, cells) = (shown.figures, subject.cells(shown));
        if !subject.per_thread {
            let rates = (figures.rate(), figures.load());
            let quantiles = figures.quantiles_at(QUANTILES);
            let mut row = row(subject, shown, figures.total(), rates, quantiles);
            let amounts = || figures.amounts();
            row.amounts = listed(amounts().map(|one| (one.name, Some(one.sum))));
            let rates = amounts().map(|one| (one.name, one.per_cpu_second));
            row.amounts_per_cpu_second = listed(rates);
            row.amounts_per_second = listed(amounts().map(|one| (one.name, one.per_second)));
            writer.serialize(row)?;
            continue;
        }
        for cell in cells {
            let sums = cell.total();
            let quantiles =
                histogram::quantiles(cell.histogram.iter(), (sums.min, sums.max), QUANTILES);
            let mut row = row(subject, shown, &sums, life(subject, shown, &sums), quantiles);
            let lane = subject.lane(cell.lane);
            row.lane = Some(cell.lane);
            row.tid = lane.map(|lane| lane.tid).filter(|tid| *tid > 0);
            row.thread = lane.map(|lane| text::cell(&lane.name));
            let of_lane = amounts(std::slice::from_ref(cell));
            let names = figures.point().amounts.iter().map(String::as_str);
            let seconds = sums.exclusive as f64 / subject.ticks_per_second();
            let rate = |sum: u128| (seconds > 0.0).then(|| sum as f64 / seconds);
            row.amounts = listed(names.clone().zip(of_lane.map(Some)));
            row.amounts_per_cpu_second = listed(names.zip(of_lane.map(rate)));
            writer.serialize(row)?;
        }
    }
    Ok(writer.flush()?)
}

/// Calls per second and load of a thread, over all the time since the point's figures began.
fn life(subject: &Subject<'_>, shown: &Shown<'_>, sums: &Stats) -> (Option<f64>, Option<f64>) {
    let length = Length::collected(subject.snapshot(), shown.figures.point());
    let Some(Length { ticks, .. }) = length else { return (None, None) };
    let seconds = ticks / subject.ticks_per_second();
    (Some(sums.count as f64 / seconds), Some(sums.exclusive as f64 / ticks))
}

fn row<'a>(
    subject: &'a Subject<'a>,
    shown: &'a Shown<'a>,
    sums: &Stats,
    (calls_per_second, load): (Option<f64>, Option<f64>),
    quantiles: Option<[u64; QUANTILES.len()]>,
) -> Row<'a> {
    let (figures, point) = (shown.figures, shown.figures.point());
    let process = subject.process(figures);
    let ns = |ticks: u64| subject.ns(ticks as f64);
    let measured = |ticks: u64| (sums.count > 0).then_some(ticks);
    let quantile = |place: usize| quantiles.map(|all| ns(all[place]));
    let exclusive = (!point.wall).then_some(sums.exclusive);
    Row {
        process: cell(&process.name),
        pid: process.pid,
        id: figures.number(),
        point: cell(&point.name),
        file: cell(&point.file),
        line: point.line,
        state: figures.state().word(),
        lane: None,
        tid: None,
        thread: None,
        calls: sums.count,
        calls_per_second,
        load,
        exclusive_ns: exclusive.map(ns),
        inclusive_ns: ns(sums.inclusive),
        off_cpu_ns: ns(sums.off_cpu),
        switches: sums.switches,
        min_ns: measured(sums.min).map(ns),
        mean_ns: sums.mean().map(|ticks| subject.ns(ticks)),
        p50_ns: quantile(0),
        p90_ns: quantile(1),
        p99_ns: quantile(2),
        p99_9_ns: quantile(3),
        max_ns: measured(sums.max).map(ns),
        last_ns: measured(sums.last).map(ns),
        deviation_ns: sums.deviation().map(|ticks| subject.ns(ticks)),
        average_ns: point.alpha.and(measured(0)).map(|_| subject.ns(sums.average)),
        alpha: point.alpha,
        resets: point.resets,
        exclusive_ticks: exclusive,
        inclusive_ticks: sums.inclusive,
        off_cpu_ticks: sums.off_cpu,
        min_ticks: measured(sums.min),
        max_ticks: measured(sums.max),
        last_ticks: measured(sums.last),
        squares_ticks2: sums.squares,
        ticks_per_second: subject.ticks_per_second(),
        amounts: String::new(),
        amounts_per_cpu_second: String::new(),
        amounts_per_second: String::new(),
    }
}

/// Amounts in one field: `bytes=2400;flops=200`.
fn listed<'a, T: Display>(amounts: impl Iterator<Item = (&'a str, Option<T>)>) -> String {
    let known = amounts.filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    cell(&known.collect::<Vec<_>>().join(";")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;

    fn exported(per_thread: bool, passes: impl Fn(u32) -> bool) -> (Model, String) {
        let (mut source, mut model) = (Synthetic::new(), Model::default());
        // Not through the gate that cleans text: the format itself keeps its fields apart.
        source.snapshot_mut().points[1].name = "a \"b\", c\r\nd\u{1b}".into();
        model.fold(source.picture().unwrap());
        let mut out = Vec::new();
        let subject = Subject::new(&model, |figures| passes(figures.id()), per_thread).unwrap();
        write(&subject, &mut out).unwrap();
        (model, String::from_utf8(out).unwrap())
    }

    #[test]
    fn hostile_names_stay_in_their_field() {
        let (_, text) = exported(false, |id| id == 1);
        let start = "my_app,4711,1,\"a \"\"b\"\", c\r\nd\u{1b}\",src/work.rs,88,on,,,,";
        assert!(text.split_once("\r\n").unwrap().1.starts_with(start), "{text}");
    }

    #[test]
    fn spans_of_the_clock_have_no_exclusive_time() {
        let (mut source, mut model) = (Synthetic::new(), Model::default());
        let point = &mut source.snapshot_mut().points[1];
        (point.device, point.wall) = (true, true);
        model.fold(source.poll().unwrap());
        let mut out = Vec::new();
        let subject = Subject::new(&model, |figures| [1, 3].contains(&figures.id()), false);
        write(&subject.unwrap(), &mut out).unwrap();
        let mut reader = ::csv::Reader::from_reader(out.as_slice());
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        let field = |row: usize, title: &str| {
            rows[row][TITLES.iter().position(|it| *it == title).unwrap()].to_owned()
        };
        for title in ["exclusive_ns", "exclusive_ticks"] {
            assert_eq!(field(0, title), "");
            assert_ne!(field(1, title), "");
        }
        assert_ne!((field(0, "inclusive_ns"), field(0, "load")), (String::new(), String::new()));
    }

    #[test]
    fn titles_are_those_of_the_rows_and_come_without_rows_too() {
        let (model, text) = exported(false, |_| false);
        assert_eq!(text, TITLES.join(",") + "\r\n");
        let subject = Subject::new(&model, |_| true, false).unwrap();
        let figures = subject.points()[1].figures;
        let row = row(&subject, &subject.points()[1], figures.total(), (None, None), None);
        let mut writer = ::csv::Writer::from_writer(Vec::new());
        writer.serialize(row).unwrap();
        let rows = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        assert_eq!(rows.lines().next(), Some(TITLES.join(",").as_str()));
    }

    /// By title, every figure equals the snapshot's; the rows of threads add up to those of points.
    #[test]
    fn figures_are_those_of_the_snapshot() {
        let (model, text) = exported(false, |_| true);
        let (_, threads) = exported(true, |_| true);
        let rows = |text: &str| -> Vec<std::collections::HashMap<String, String>> {
            ::csv::Reader::from_reader(text.as_bytes()).deserialize().map(Result::unwrap).collect()
        };
        let (points, threads) = (rows(&text), rows(&threads));
        assert_eq!(points.len(), model.points().len());
        for (row, figures) in points.iter().zip(model.points()) {
            let sums = figures.total();
            assert_eq!(row["calls"], sums.count.to_string());
            assert_eq!(row["squares_ticks2"], sums.squares.to_string());
            let ns: f64 = row["exclusive_ns"].parse().unwrap();
            assert!((ns - sums.exclusive as f64 / 2.6).abs() <= ns * 1e-12);
            for (title, ticks) in
                [("min_ns", sums.min), ("max_ns", sums.max), ("last_ns", sums.last)]
            {
                match sums.count {
                    0 => assert_eq!(row[title], ""),
                    _ => assert_eq!(row[title].parse::<f64>().unwrap(), ticks as f64 * 1e9 / 2.6e9),
                }
            }
            let of_threads = threads.iter().filter(|thread| thread["id"] == row["id"]);
            let ticks = of_threads.map(|t| t["exclusive_ticks"].parse::<u64>().unwrap());
            assert_eq!(ticks.sum::<u64>(), sums.exclusive);
        }
        assert!(threads.iter().any(|thread| thread["thread"] == "packer"));
        assert_eq!(points[1]["average_ns"].is_empty(), points[1]["alpha"].is_empty());
    }
}

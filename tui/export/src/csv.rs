//! All figures of every point as comma-separated values, RFC 4180: a line of
//! titles, then a row for each point, or for each point and thread.
//!
//! A title ends with its unit: `_ns` nanoseconds, `_ticks` ticks of the process's clock, exact;
//! `load` is the share of one CPU. A text that a spreadsheet would take for a formula begins with
//! an apostrophe ([`pfp_read::text::cell`]). A missing figure is an empty field. Three fields have
//! all amounts of a point, as in `bytes=2400;flops=200`: their sums, the sums per second of
//! exclusive time, and the sums per second of wall-clock time. Fields of allocations are empty if
//! none were counted. The model computes rates and loads.
//! For a file, or a single poll of a process, rates and loads are averages over the whole life of
//! the process, or over the time since the point's reset.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;

use super::rows::Value;
use super::subject::{ExportedPoint, Subject};
use pfp_model::{Length, amounts, histogram};
use pfp_read::snapshot::{Allocs, Cell, HeapSamples, Lane, Point, Stats};
use pfp_read::text::cell;

/// A title, and the function for the values of its column.
type CsvColumn = (&'static str, fn(&CsvRow<'_>) -> Value);

const COLUMNS: [CsvColumn; 47] = [
    ("process", |row| text(&row.subject.process(row.shown.figures).name)),
    ("pid", |row| row.subject.process(row.shown.figures).pid.into()),
    ("id", |row| row.shown.figures.number().into()),
    ("point", |row| text(&row.point().name)),
    ("file", |row| text(&row.point().file)),
    ("line", |row| row.point().line.into()),
    ("state", |row| row.shown.figures.state().word().into()),
    ("lane", |row| row.lane.into()),
    ("tid", |row| row.thread().map(|lane| lane.tid).filter(|tid| *tid > 0).into()),
    ("thread", |row| row.thread().map(|lane| text(&lane.name)).into()),
    ("calls", |row| row.sums.count.into()),
    ("calls_per_second", |row| row.calls_per_second.into()),
    ("load", |row| row.load.into()),
    ("exclusive_ns", |row| row.exclusive().map(|ticks| row.ns(ticks)).into()),
    ("inclusive_ns", |row| row.ns(row.sums.inclusive).into()),
    ("off_cpu_ns", |row| row.ns(row.sums.off_cpu).into()),
    ("switches", |row| row.sums.switches.into()),
    ("min_ns", |row| row.measured(row.sums.min).map(|ticks| row.ns(ticks)).into()),
    ("mean_ns", |row| row.sums.mean().map(|ticks| row.subject.ns(ticks)).into()),
    ("p50_ns", |row| row.quantile(0).into()),
    ("p90_ns", |row| row.quantile(1).into()),
    ("p99_ns", |row| row.quantile(2).into()),
    ("p99_9_ns", |row| row.quantile(3).into()),
    ("max_ns", |row| row.measured(row.sums.max).map(|ticks| row.ns(ticks)).into()),
    ("last_ns", |row| row.measured(row.sums.last).map(|ticks| row.ns(ticks)).into()),
    ("deviation_ns", |row| row.sums.deviation().map(|ticks| row.subject.ns(ticks)).into()),
    ("average_ns", |row| {
        let average = row.point().alpha.and(row.measured(row.sums.average_ticks()));
        average.map(|ticks| row.subject.ns(ticks)).into()
    }),
    ("alpha", |row| row.point().alpha.into()),
    ("resets", |row| row.point().resets.into()),
    ("exclusive_ticks", |row| row.exclusive().into()),
    ("inclusive_ticks", |row| row.sums.inclusive.into()),
    ("off_cpu_ticks", |row| row.sums.off_cpu.into()),
    ("min_ticks", |row| row.measured(row.sums.min).into()),
    ("max_ticks", |row| row.measured(row.sums.max).into()),
    ("last_ticks", |row| row.measured(row.sums.last).into()),
    ("squares_ticks2", |row| row.sums.squares.into()),
    ("ticks_per_second", |row| row.subject.ticks_per_second().into()),
    ("amounts", |row| text(&row.amounts[0])),
    ("amounts_per_cpu_second", |row| text(&row.amounts[1])),
    ("amounts_per_second", |row| text(&row.amounts[2])),
    ("allocs", |row| row.allocated(|allocs| allocs.allocs)),
    ("alloc_bytes", |row| row.allocated(|allocs| allocs.bytes)),
    ("freed_bytes", |row| row.allocated(|allocs| allocs.freed)),
    ("allocs_inclusive", |row| row.allocated(|allocs| allocs.allocs_inclusive)),
    ("alloc_bytes_inclusive", |row| row.allocated(|allocs| allocs.bytes_inclusive)),
    ("largest_alloc", |row| row.allocated(|allocs| allocs.largest)),
    ("live_bytes", |row| row.live_bytes().into()),
];

const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// A point, or a thread's part of it.
struct CsvRow<'a> {
    subject: &'a Subject<'a>,
    shown: &'a ExportedPoint<'a>,
    lane: Option<u32>,
    sums: Stats,
    calls_per_second: Option<f64>,
    load: Option<f64>,
    quantiles: Option<[u64; QUANTILES.len()]>,
    /// The sums of the amounts; the sums per second of exclusive time; the sums per second of
    /// wall-clock time.
    amounts: [String; 3],
    allocs: Allocs,
    heap: HeapSamples,
}

impl<'a> CsvRow<'a> {
    fn of_point(subject: &'a Subject<'a>, shown: &'a ExportedPoint<'a>) -> Self {
        let figures = shown.figures;
        let amounts = || figures.amounts();
        Self {
            subject,
            shown,
            lane: None,
            sums: figures.total().clone(),
            calls_per_second: figures.rate(),
            load: figures.load(),
            quantiles: figures.quantiles_at(QUANTILES),
            amounts: [
                listed(amounts().map(|one| (one.name, Some(one.sum)))),
                listed(amounts().map(|one| (one.name, one.per_cpu_second))),
                listed(amounts().map(|one| (one.name, one.per_second))),
            ],
            allocs: figures.allocs().copied().unwrap_or_default(),
            heap: *figures.heap(),
        }
    }

    /// Averages the rates and the load over the whole time since the point's figures began.
    fn of_thread(subject: &'a Subject<'a>, shown: &'a ExportedPoint<'a>, cell: &Arc<Cell>) -> Self {
        let sums = cell.total();
        let point = shown.figures.point();
        let ticks = Length::collected(subject.snapshot(), point).map(|length| length.ticks);
        let names = point.amounts.iter().map(String::as_str);
        let of_lane = amounts(std::slice::from_ref(cell));
        let seconds = sums.exclusive as f64 / subject.ticks_per_second();
        let rate = |sum: u128| (seconds > 0.0).then(|| sum as f64 / seconds);
        Self {
            subject,
            shown,
            lane: Some(cell.lane),
            calls_per_second: ticks
                .map(|ticks| sums.count as f64 / (ticks / subject.ticks_per_second())),
            load: ticks.map(|ticks| sums.exclusive as f64 / ticks),
            quantiles: histogram::quantiles(cell.histogram.iter(), (sums.min, sums.max), QUANTILES),
            amounts: [
                listed(names.clone().zip(of_lane.map(Some))),
                listed(names.zip(of_lane.map(rate))),
                String::new(),
            ],
            allocs: cell.allocs,
            heap: cell.heap,
            sums,
        }
    }

    fn point(&self) -> &'a Point {
        self.shown.figures.point()
    }

    fn thread(&self) -> Option<&'a Lane> {
        self.subject.snapshot().lane(self.lane?)
    }

    fn ns(&self, ticks: u64) -> f64 {
        self.subject.ns(ticks as f64)
    }

    /// `None` for wall-clock spans.
    fn exclusive(&self) -> Option<u64> {
        (!self.point().wall).then_some(self.sums.exclusive)
    }

    /// A figure of the allocations, if some were counted.
    fn allocated(&self, of: fn(&Allocs) -> u64) -> Value {
        self.has_allocs().then(|| of(&self.allocs)).into()
    }

    fn has_allocs(&self) -> bool {
        self.allocs.is_any() || self.heap.is_any()
    }

    fn live_bytes(&self) -> Option<u64> {
        self.has_allocs().then_some(self.heap.live_bytes)
    }

    fn measured<T>(&self, figure: T) -> Option<T> {
        (self.sums.count > 0).then_some(figure)
    }

    fn quantile(&self, place: usize) -> Option<f64> {
        self.quantiles.map(|all| self.ns(all[place]))
    }
}

/// Writes the titles and the rows.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    rows(subject, out).map_err(|error| match error.into_kind() {
        // Pass I/O errors through unchanged: a writer into a pipe must recognise that the reader is
        // gone.
        ::csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    })
}

fn rows(subject: &Subject<'_>, out: &mut dyn Write) -> ::csv::Result<()> {
    // The titles are written even if there are no rows.
    let mut writer = ::csv::WriterBuilder::new()
        .terminator(::csv::Terminator::CRLF)
        .has_headers(false)
        .from_writer(out);
    writer.write_record(COLUMNS.map(|(title, _)| title))?;
    let mut write = |row: &CsvRow<'_>| writer.serialize(COLUMNS.map(|(_, of)| of(row)).as_slice());
    for shown in subject.points() {
        if !subject.per_thread {
            write(&CsvRow::of_point(subject, shown))?;
            continue;
        }
        for cell in subject.snapshot().cells_of(shown.figures.id()) {
            write(&CsvRow::of_thread(subject, shown, cell))?;
        }
    }
    Ok(writer.flush()?)
}

/// A text that a spreadsheet does not take for a formula.
fn text(text: &str) -> Value {
    cell(text).into_owned().into()
}

/// Amounts in one field: `bytes=2400;flops=200`.
fn listed<'a, T: Display>(amounts: impl Iterator<Item = (&'a str, Option<T>)>) -> String {
    let known = amounts.filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    known.collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::tests::written;
    use pfp_model::Model;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    fn exported(per_thread: bool, passes: impl Fn(u32) -> bool) -> (Model, String) {
        let mut source = Synthetic::new();
        // Set the name directly, since `poll` would clean it: the format itself must escape such
        // names.
        source.snapshot_mut().points[1].name = "a \"b\", c\r\nd\u{1b}".into();
        let model = Model::of(source.picture().unwrap());
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
        let mut source = Synthetic::new();
        let point = &mut source.snapshot_mut().points[1];
        (point.device, point.wall) = (true, true);
        let model = Model::of(source.poll().unwrap());
        let out = written(Format::Csv, &model, |id| [1, 3].contains(&id));
        let mut reader = ::csv::Reader::from_reader(out.as_slice());
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        let field = |row: usize, title: &str| {
            rows[row][COLUMNS.iter().position(|it| it.0 == title).unwrap()].to_owned()
        };
        for title in ["exclusive_ns", "exclusive_ticks"] {
            assert_eq!(field(0, title), "");
            assert_ne!(field(1, title), "");
        }
        assert_ne!((field(0, "inclusive_ns"), field(0, "load")), (String::new(), String::new()));
    }

    #[test]
    fn titles_come_without_rows_too() {
        let (_, text) = exported(false, |_| false);
        assert_eq!(text, COLUMNS.map(|(title, _)| title).join(",") + "\r\n");
    }

    /// The figure below each title equals the snapshot's, and the rows of a point's threads add up
    /// to the row of the point.
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

//! The rows of the table for programs: a line of JSON for each update, or CSV.
//!
//! Figures are raw: seconds (or ticks, if the user chose cycles), shares of one, whole numbers.
//! Headings have the unit; unknown figures are null or empty.

use anyhow::Result;
use serde::Serialize;
use serde::ser::Serializer;

use pfp_model::columns::{Column, Kind};
use pfp_model::{Basis, Figures, Model};
use pfp_read::snapshot::{End, Process, Snapshot};
use pfp_read::text::cell;
use pfp_read::units::Unit;
use pfp_read::waits::PointReport;

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Value {
    None,
    Text(String),
    Whole(u128),
    Number(f64),
    Flag(bool),
}

macro_rules! values {
    ($($variant:ident: $($from:ty),*;)*) => {
        $($(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })*)*
    };
}

values! { Text: String, &str; Whole: u32, u64, u128; Number: f64; Flag: bool; }

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl Value {
    fn written(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Text(text) => cell(text).into_owned(),
            Self::Whole(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
            Self::Flag(value) => value.to_string(),
        }
    }
}

/// The field next to a mean that says whether the mean is too short to be exact.
const SHORT: &str = "avg_short";

/// The heading of a column: its word and its unit.
pub fn heading(column: Column, unit: Unit) -> String {
    let word = column.spec().exported;
    let suffix = match unit {
        Unit::Time => "s",
        Unit::Cycles => "cycles",
    };
    match column.kind() {
        Kind::Time | Kind::Sum => format!("{word}_{suffix}"),
        _ => word.into(),
    }
}

fn value(column: Column, figures: &Figures, snapshot: &Snapshot, unit: Unit) -> Value {
    let value = column.value(figures);
    let number = |value: Option<f64>| value.filter(|value| value.is_finite()).into();
    match (column, column.kind()) {
        (Column::On, _) => figures.state().word().into(),
        (Column::Process, _) => figures.process().map(Process::to_string).into(),
        (Column::Host, _) => figures.process().map(|process| process.host.clone()).into(),
        (Column::Domain, _) => figures.point().domain().into(),
        (Column::Name, _) => figures.name().into(),
        (Column::Waits, _) => {
            figures.waits().and_then(PointReport::main_wait).map(|(what, _)| what).into()
        }
        (_, Kind::Text | Kind::Picture) => Value::None,
        (_, Kind::Count | Kind::Whole) => value.map(|value| value as u64).into(),
        (_, Kind::Time | Kind::Sum) if unit == Unit::Time => {
            number(value.map(|ticks| ticks / snapshot.clock.ticks_per_second))
        }
        _ => number(value),
    }
}

/// The headings of columns. A mean has a second heading, [`SHORT`].
fn headings(columns: &[Column], unit: Unit) -> Vec<String> {
    let with_short = |column: &Column| {
        let short = (*column == Column::Avg).then(|| SHORT.to_owned());
        std::iter::once(heading(*column, unit)).chain(short)
    };
    columns.iter().flat_map(with_short).collect()
}

/// The figures of a point below these headings.
fn values(columns: &[Column], figures: &Figures, snapshot: &Snapshot, unit: Unit) -> Vec<Value> {
    let with_short = |column: &Column| {
        let short = (*column == Column::Avg).then(|| figures.is_short().into());
        std::iter::once(value(*column, figures, snapshot, unit)).chain(short)
    };
    columns.iter().flat_map(with_short).collect()
}

/// One update of the table.
#[derive(Serialize)]
struct Update<'a> {
    format: &'static str,
    version: u32,
    /// Time of the poll, seconds since the Unix epoch.
    time_unix_s: f64,
    process: ProcessInfo<'a>,
    /// Whether rates and loads are over the interval since the previous update, or over the
    /// process's whole life.
    basis: &'static str,
    points: Vec<JsonRow<'a>>,
}

#[derive(Serialize)]
struct ProcessInfo<'a> {
    name: &'a str,
    pid: u32,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'a End>,
    uptime_s: f64,
}

/// A point with its columns in order.
struct JsonRow<'a> {
    headings: &'a [String],
    values: Vec<Value>,
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_map(self.headings.iter().zip(&self.values))
    }
}

fn time_unix_s(snapshot: &Snapshot) -> f64 {
    // Rounded to a millisecond, which is the time that a poll takes.
    (snapshot.taken_unix_ns / 1_000_000) as f64 / 1e3
}

/// The rows as one line of JSON; empty before the first snapshot.
pub fn json(model: &Model, rows: &[&Figures], columns: &[Column], unit: Unit) -> Result<String> {
    let Some(snapshot) = model.snapshot() else {
        return Ok(String::new());
    };
    let (process, headings) = (&snapshot.process, headings(columns, unit));
    let row = |figures: &&Figures| {
        let values = values(columns, figures, snapshot, unit);
        JsonRow { headings: &headings, values }
    };
    let update = Update {
        format: "pfp-table",
        version: 1,
        time_unix_s: time_unix_s(snapshot),
        process: ProcessInfo {
            name: &process.name,
            pid: process.pid,
            state: process.state_word(),
            end: process.end.as_ref(),
            uptime_s: snapshot.elapsed_ticks as f64 / snapshot.clock.ticks_per_second,
        },
        basis: match model.basis() {
            Basis::Life => "life",
            Basis::Interval => "interval",
        },
        points: rows.iter().map(row).collect(),
    };
    Ok(serde_json::to_string(&update)? + "\n")
}

/// The rows as CSV (RFC 4180, but with line feeds), each with its time, and with headings in the
/// first line if wanted.
pub fn csv(
    model: &Model,
    rows: &[&Figures],
    columns: &[Column],
    unit: Unit,
    with_headings: bool,
) -> Result<String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    if with_headings {
        let time = std::iter::once("time_unix_s".to_owned());
        out.write_record(time.chain(headings(columns, unit)))?;
    }
    if let Some(snapshot) = model.snapshot() {
        let time = time_unix_s(snapshot).to_string();
        for figures in rows {
            let values = values(columns, figures, snapshot, unit);
            let written = values.iter().map(Value::written);
            out.write_record(std::iter::once(time.clone()).chain(written))?;
        }
    }
    Ok(String::from_utf8(out.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::{Synthetic, TICKS_PER_SECOND};

    /// Ticks of a begin and end: high enough that the means of some points count as too short.
    const PAIR: u64 = 20_000;

    fn is_short(figures: &Figures) -> bool {
        figures.mean().is_some_and(|mean| mean < 10.0 * PAIR as f64)
    }

    fn model() -> Model {
        let (mut source, mut model) = (Synthetic::new(), Model::default());
        source.snapshot_mut().points[1].name = "a, \"b\"".into();
        source.snapshot_mut().clock.overhead_pair = PAIR;
        model.fold(source.poll().unwrap());
        model.fold(source.poll().unwrap());
        model
    }

    const COLUMNS: [Column; 5] =
        [Column::Name, Column::Count, Column::Avg, Column::Rate, Column::Ewma];

    #[test]
    fn figures_are_raw_and_their_headings_have_the_unit() {
        let model = model();
        let rows: Vec<_> = model.points().iter().collect();
        let line = json(&model, &rows, &COLUMNS, Unit::Time).unwrap();
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let update: serde_json::Value = serde_json::from_str(&line).unwrap();
        let point = &update["points"][1];
        let figures = &rows[1];
        assert_eq!(point["name"], "a, \"b\"");
        assert_eq!(point["count"], figures.total().count);
        let seconds = figures.mean().unwrap() / TICKS_PER_SECOND as f64;
        assert_eq!(point["avg_s"].as_f64(), Some(seconds));
        assert_eq!(update["points"][8]["avg_s"], serde_json::Value::Null, "never measured");
        assert_eq!(update["basis"], "interval");
        for (point, figures) in update["points"].as_array().unwrap().iter().zip(&rows) {
            assert_eq!(point["avg_short"], is_short(figures));
        }
        let short = rows.iter().filter(|figures| is_short(figures)).count();
        assert!((1..rows.len()).contains(&short), "some are, some are not");
        let keys: Vec<_> = COLUMNS.iter().map(|c| heading(*c, Unit::Time)).collect();
        let places: Vec<_> = keys.iter().map(|key| line.find(&format!("\"{key}\":"))).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{line}");
    }

    /// The schema of a column's values.
    fn schema_of(column: Column) -> serde_json::Value {
        let number = |least: f64| json!({"type": ["number", "null"], "minimum": least});
        let whole = |most: u64| json!({"type": ["integer", "null"], "minimum": 0, "maximum": most});
        let mut schema = match (column, column.kind()) {
            (Column::On, _) => json!({"enum": ["on", "off", "invalid"]}),
            (_, Kind::Text) => json!({"type": ["string", "null"]}),
            (_, Kind::Count) => whole(u64::MAX),
            (_, Kind::Whole) => whole(u32::MAX.into()),
            (Column::Imbalance, _) => number(1.0),
            (Column::LiveGrown | Column::LiveGrowth, _) => json!({"type": ["number", "null"]}),
            _ => number(0.0),
        };
        match column {
            Column::Off => schema["maximum"] = json!(1.0),
            // Every point has these.
            Column::Id | Column::Name | Column::Count => {
                schema["type"] = schema["type"][0].take();
            }
            _ => {}
        }
        schema
    }

    #[test]
    fn the_schema_has_every_column_in_both_units() {
        let of_point = |unit: Unit| {
            let columns = Column::ALL.iter().filter(|column| !column.is_drawn());
            let mut properties: serde_json::Map<_, _> =
                columns.map(|column| (heading(*column, unit), schema_of(*column))).collect();
            let short = "Whether the mean is below ten times the cost of measuring, and so not to \
                         be believed.";
            properties.insert(SHORT.into(), json!({"description": short, "type": "boolean"}));
            json!({
                "type": "object",
                "properties": properties,
                "additionalProperties": false,
                "minProperties": 1,
            })
        };
        let points =
            json!({"in_seconds": of_point(Unit::Time), "in_cycles": of_point(Unit::Cycles)});
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/table.schema.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, _) = text.split_once("  \"$defs\": ").unwrap();
        let points = serde_json::to_string_pretty(&points).unwrap().replace('\n', "\n  ");
        let renewed = format!("{before}  \"$defs\": {points}\n}}\n");
        if std::env::var_os("INSTA_UPDATE").is_some_and(|how| how == "always") {
            std::fs::write(&path, renewed).unwrap();
        } else {
            let why = "is not what the columns are: INSTA_UPDATE=always writes it";
            assert!(text == renewed, "{} {why}", path.display());
        }
    }

    #[test]
    fn every_reader_of_csv_gets_the_same_back() {
        let model = model();
        let rows: Vec<_> = model.points().iter().collect();
        let text = csv(&model, &rows, &COLUMNS, Unit::Cycles, true).unwrap()
            + &csv(&model, &rows, &COLUMNS, Unit::Cycles, false).unwrap();
        assert!(
            text.starts_with(
                "time_unix_s,name,count,avg_cycles,avg_short,rate_per_s,smooth_cycles\n"
            ),
            "{text}"
        );
        assert!(text.contains(",\"a, \"\"b\"\"\","), "{text}");
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let records: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!(records.len(), 2 * rows.len());
        for (record, figures) in records.iter().zip(rows.iter().chain(&rows)) {
            assert_eq!(record[1], figures.name());
            assert_eq!(record[2], figures.total().count.to_string());
            let mean = figures.mean().map_or(String::new(), |mean| mean.to_string());
            assert_eq!(record[3], mean);
            assert_eq!(record[4], is_short(figures).to_string());
        }
    }
}

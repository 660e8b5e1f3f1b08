//! The columns of the table: what they are called, show and sort by, and how
//! soon they give way on a narrow screen. The screen and the text export both
//! draw from here.

use std::cmp::{Ordering, Reverse};

use clap::ValueEnum;

use crate::model::{BUCKETS_AT_ONCE, BYTES, FLOPS, Figures, OpenNow, Quantiles};
use crate::snapshot::{PointState, Process, ProcessState};
use crate::units::{self, NONE, Scale};

/// One column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// Whether the point measures.
    On,
    /// Its id.
    Id,
    /// Its process; shown only where there are several.
    Process,
    /// Its name.
    Name,
    /// Measurements.
    Count,
    /// Measurements per second.
    Rate,
    /// Share of one CPU.
    Load,
    /// The load as a bar.
    #[value(skip)]
    Bar,
    /// Load of the last intervals.
    #[value(skip)]
    Trend,
    /// All exclusive time.
    Excl,
    /// Mean exclusive time.
    Avg,
    /// Least exclusive time.
    Min,
    /// Most exclusive time.
    Max,
    /// Median of exclusive time.
    P50,
    /// 90th percentile of exclusive time.
    P90,
    /// 99th percentile of exclusive time.
    P99,
    /// Share of the span off the CPU.
    Off,
    /// All time with nested regions.
    Incl,
    /// Standard deviation of exclusive time.
    Dev,
    /// Exclusive time of the last measurement.
    Last,
    /// Exponential average of exclusive time.
    Smooth,
    /// Switches between begin and end.
    Switches,
    /// Threads that were in it.
    #[value(name = "thr")]
    Threads,
    /// Bytes in a second of exclusive time, of a point that tells of bytes.
    Bytes,
    /// Floating-point operations in a second of exclusive time.
    Flops,
    /// Floating-point operations for each byte.
    Intensity,
    /// What else the point counts, in a second of exclusive time.
    Items,
    /// Exclusive time of one of those.
    PerItem,
    /// The greatest exclusive time of a process over the mean, of a point that is summed
    /// over several.
    Imbalance,
}

/// What the figures of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Shares, in per cent.
    Percent,
    /// Times.
    Seconds,
    /// Anything else.
    Number,
}

/// Before a mean that is not to be believed; see [`Figures::is_short`].
pub const SHORT: char = '~';

/// From this width on processes have a column.
const PROCESS_MIN: usize = 60;
/// Room that the name gets at least.
pub const NAME_MIN: usize = 10;
/// Names get this part of the width at least, if they need it.
const NAME_SHARE: usize = 5;
/// Room for a name at most: figures far away from their name are hard to read.
const NAME_MOST: usize = 64;
/// Columns that the bar and the trend get at most in addition to their least.
const BAR_MORE: usize = 12;
const TREND_MORE: usize = 100;

impl Column {
    /// All there are.
    pub const ALL: [Self; 29] = [
        Self::On,
        Self::Id,
        Self::Process,
        Self::Name,
        Self::Count,
        Self::Rate,
        Self::Load,
        Self::Bar,
        Self::Trend,
        Self::Excl,
        Self::Avg,
        Self::Min,
        Self::Max,
        Self::P50,
        Self::P90,
        Self::P99,
        Self::Off,
        Self::Incl,
        Self::Dev,
        Self::Last,
        Self::Smooth,
        Self::Switches,
        Self::Threads,
        Self::Bytes,
        Self::Flops,
        Self::Intensity,
        Self::Items,
        Self::PerItem,
        Self::Imbalance,
    ];

    /// Those of the table unless the user chooses others, from left to right.
    pub const DEFAULT: [Self; 14] = [
        Self::On,
        Self::Process,
        Self::Name,
        Self::Load,
        Self::Bar,
        Self::Trend,
        Self::Count,
        Self::Rate,
        Self::Excl,
        Self::Avg,
        Self::P50,
        Self::P99,
        Self::Max,
        Self::Off,
    ];

    /// Those that programs get unless the user chooses others.
    pub const PRINTED: [Self; 14] = [
        Self::On,
        Self::Id,
        Self::Process,
        Self::Name,
        Self::Count,
        Self::Rate,
        Self::Load,
        Self::Excl,
        Self::Avg,
        Self::Min,
        Self::Max,
        Self::P50,
        Self::P99,
        Self::Off,
    ];

    /// What stands over it.
    pub fn title(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::Id => "ID",
            Self::Process => "Process",
            Self::Name => "Name",
            Self::Count => "Count",
            Self::Rate => "/s",
            Self::Load => "Load%",
            Self::Bar => "Bar",
            Self::Trend => "Trend",
            Self::Excl => "Excl",
            Self::Avg => "Avg",
            Self::Min => "Min",
            Self::Max => "Max",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::Off => "Off%",
            Self::Incl => "Incl",
            Self::Dev => "Dev",
            Self::Last => "Last",
            Self::Smooth => "EWMA",
            Self::Switches => "Switch",
            Self::Threads => "Thr",
            Self::Bytes => "B/s",
            Self::Flops => "FLOP/s",
            Self::Intensity => "FLOP/B",
            Self::Items => "Item/s",
            Self::PerItem => "/Item",
            Self::Imbalance => "Imbal",
        }
    }

    /// What it shows, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::On => "whether it measures",
            Self::Id => "its number",
            Self::Process => "its process, where there are several",
            Self::Name => "its name",
            Self::Count => "measurements",
            Self::Rate => "measurements per second",
            Self::Load => "share of one CPU, smoothed",
            Self::Bar => "its load as a bar, on one scale for all rows",
            Self::Trend => "load of the last polls, on the same scale",
            Self::Excl => "all time, less that of nested regions that are on",
            Self::Avg => "mean of a measurement",
            Self::Min => "shortest measurement",
            Self::Max => "longest measurement",
            Self::P50 => "half are shorter",
            Self::P90 => "90 of 100 are shorter",
            Self::P99 => "99 of 100 are shorter",
            Self::Off => "share of its span off the CPU",
            Self::Incl => "all time, with nested regions and their measuring",
            Self::Dev => "standard deviation",
            Self::Last => "last measurement",
            Self::Smooth => "exponential average of a measurement (key a)",
            Self::Switches => "times its threads were off the CPU",
            Self::Threads => "threads that were in it",
            Self::Bytes => "bytes in a second of its time",
            Self::Flops => "floating-point operations in a second",
            Self::Intensity => "floating-point operations per byte",
            Self::Items => "what else it counts, in a second",
            Self::PerItem => "time of one of what it counts",
            Self::Imbalance => "in a sum: greatest process over mean",
        }
    }

    /// Its name on the command line and in the settings file.
    pub fn word(self) -> String {
        match self.to_possible_value() {
            Some(value) => value.get_name().to_owned(),
            None => self.title().to_lowercase(),
        }
    }

    /// The column of that name.
    pub fn of_word(word: &str) -> Result<Self, String> {
        let all: Vec<String> = Self::ALL.into_iter().map(Self::word).collect();
        match all.iter().position(|name| name == word) {
            Some(place) => Ok(Self::ALL[place]),
            None => Err(format!("expected columns among {}, found {word}", all.join(", "))),
        }
    }

    /// These columns once each, with those that a table always has.
    pub fn table_of(columns: &[Self]) -> Vec<Self> {
        let mut table = vec![Self::On];
        for column in columns {
            if !table.contains(column) {
                table.push(*column);
            }
        }
        if !table.contains(&Self::Name) {
            table.insert(1, Self::Name);
        }
        if !table.contains(&Self::Process) {
            let name = table.iter().position(|column| *column == Self::Name);
            table.insert(name.unwrap_or(1), Self::Process);
        }
        table
    }

    /// Those of a table's columns that it shows of one process, or of several.
    pub fn shown(columns: &[Self], several: bool) -> Vec<Self> {
        columns.iter().copied().filter(|column| several || *column != Self::Process).collect()
    }

    /// Whether the table always has it.
    pub fn stays(self) -> bool {
        matches!(self, Self::On | Self::Process | Self::Name)
    }

    /// Its width on the screen, with room for the sorting mark behind the
    /// title; none for the name, which takes what is left.
    pub fn width(self) -> Option<usize> {
        Some(match self {
            Self::On => 3,
            Self::Id => 5,
            Self::Process => 20,
            Self::Name => return None,
            Self::Count => 6,
            Self::Rate => 5,
            Self::Load => 6,
            Self::Bar | Self::Trend => 8,
            Self::Excl | Self::Avg | Self::Min | Self::Max => 7,
            Self::P50 | Self::P90 | Self::P99 => 7,
            Self::Incl | Self::Dev | Self::Last | Self::Smooth | Self::Switches => 7,
            Self::Off | Self::Threads => 5,
            Self::Bytes | Self::Flops | Self::Intensity | Self::Items => 7,
            Self::PerItem | Self::Imbalance => 7,
        })
    }

    /// Its rank when room is short: what is greater goes first.
    fn dispensable(self) -> u8 {
        match self {
            Self::On | Self::Process | Self::Name => 0,
            Self::Load => 1,
            Self::Rate => 2,
            Self::Avg => 3,
            Self::Count => 4,
            Self::Bar => 5,
            Self::P99 => 6,
            Self::Off => 7,
            Self::Max => 8,
            Self::Trend => 9,
            Self::Excl => 10,
            Self::P50 => 11,
            // None of the others is among the columns that are dropped by rank.
            _ => 12,
        }
    }

    /// Whether it is a picture, and of use on the screen alone.
    pub fn is_drawn(self) -> bool {
        matches!(self, Self::Bar | Self::Trend)
    }

    /// Whether the user can sort by it.
    pub fn sorts(self) -> bool {
        !self.is_drawn()
    }

    /// Whether its natural order is the greatest first.
    pub fn greatest_first(self) -> bool {
        !matches!(self, Self::Id | Self::Process | Self::Name | Self::On)
    }

    /// Whether it holds text, which starts at the left.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Process | Self::Name) || self.is_drawn()
    }

    /// What it shows of a point. The state and the trend are the drawer's own:
    /// they are glyphs.
    pub fn text(self, figures: &Figures, scale: &Scale) -> String {
        let single = |value: Option<f64>| value.map_or(NONE.into(), |value| scale.single(value));
        let total = figures.total();
        let used = |value: u64| figures.is_used().then_some(value as f64);
        // Of one that has never ended, what it has come to.
        let so_far = |value: u64, open: fn(&OpenNow) -> Option<u64>| match figures.is_used() {
            true => Some(value as f64),
            false => figures.open().and_then(open).map(|ticks| ticks as f64),
        };
        match self {
            Self::On => state_word(figures.state()).into(),
            Self::Id => figures.number().to_string(),
            Self::Process => figures.process().map_or(String::new(), process_text),
            Self::Name => match figures.trouble().as_slice() {
                [] if figures.point().device => format!("{} (device)", figures.name()),
                [] => match figures.open().filter(|_| !figures.is_used()) {
                    Some(open) => {
                        let wall = if open.on_cpu.is_none() { " wall" } else { "" };
                        let span = scale.ticks(open.span as f64);
                        format!("{} open {span}{wall}", figures.name())
                    }
                    None => figures.name(),
                },
                trouble => {
                    let words: Vec<_> = trouble.iter().map(|trouble| trouble.words()).collect();
                    format!("{} {}", figures.name(), words.join(", "))
                }
            },
            Self::Count => units::count(total.count),
            Self::Rate => match figures.rate() {
                Some(rate) if rate > 0.0 => units::si(rate),
                _ => NONE.into(),
            },
            Self::Load => match (figures.state(), figures.load()) {
                (PointState::Off, load) if load.is_none_or(|load| load < 0.0005) => "off".into(),
                (PointState::InvalidBeginBegin, _) => "INVAL".into(),
                (_, Some(load)) => units::percent(load),
                (_, None) => NONE.into(),
            },
            Self::Bar | Self::Trend => String::new(),
            Self::Excl => so_far(total.exclusive, |open| open.exclusive)
                .map_or(NONE.into(), |sum| scale.ticks(sum)),
            Self::Avg if figures.is_short() => format!("{SHORT}{}", single(figures.mean())),
            Self::Avg => single(figures.mean()),
            Self::Min => single(used(total.min)),
            Self::Max => single(used(total.max)),
            Self::P50 => single(figures.quantiles().map(|q| q.p50 as f64)),
            Self::P90 => single(figures.quantiles().map(|q| q.p90 as f64)),
            Self::P99 => single(figures.quantiles().map(|q| q.p99 as f64)),
            Self::Off => figures.off_share().map_or(NONE.into(), units::percent),
            Self::Incl => so_far(total.inclusive, |open| open.on_cpu)
                .map_or(NONE.into(), |sum| scale.ticks(sum)),
            Self::Dev => single(figures.deviation()),
            Self::Last => single(used(total.last)),
            Self::Smooth => single(smoothed(figures)),
            Self::Switches => units::count(total.switches),
            Self::Threads => figures.lanes().count().to_string(),
            Self::Bytes | Self::Flops | Self::Intensity | Self::Items => {
                self.of_amounts(figures).map_or(NONE.into(), units::si)
            }
            Self::PerItem => figures.per_item().map_or(NONE.into(), |ticks| scale.ticks(ticks)),
            Self::Imbalance => figures.imbalance().map_or(NONE.into(), units::si),
        }
    }

    /// What its figures are, for a comparison with one that is typed; none where they are
    /// no figures.
    pub fn measure(self) -> Option<Measure> {
        Some(match self {
            Self::Load | Self::Off => Measure::Percent,
            Self::Excl | Self::Avg | Self::Min | Self::Max | Self::P50 | Self::P90 => {
                Measure::Seconds
            }
            Self::P99 | Self::Incl | Self::Dev | Self::Last | Self::Smooth => Measure::Seconds,
            Self::Id | Self::Count | Self::Rate | Self::Switches | Self::Threads => Measure::Number,
            Self::Bytes | Self::Flops | Self::Intensity | Self::Items => Measure::Number,
            Self::PerItem | Self::Imbalance => Measure::Number,
            Self::On | Self::Process | Self::Name | Self::Bar | Self::Trend => return None,
        })
    }

    /// The figure of a point, per cent or seconds where it is of that kind.
    pub fn figure(self, figures: &Figures) -> Option<f64> {
        let total = figures.total();
        let used = |value: u64| figures.is_used().then_some(value as f64);
        let value = match self {
            Self::Load => figures.load(),
            Self::Off => figures.off_share(),
            Self::Excl => used(total.exclusive),
            Self::Avg => figures.mean(),
            Self::Min => used(total.min),
            Self::Max => used(total.max),
            Self::P50 => figures.quantiles().map(|q| q.p50 as f64),
            Self::P90 => figures.quantiles().map(|q| q.p90 as f64),
            Self::P99 => figures.quantiles().map(|q| q.p99 as f64),
            Self::Incl => used(total.inclusive),
            Self::Dev => figures.deviation(),
            Self::Last => used(total.last),
            Self::Smooth => smoothed(figures),
            Self::Id => Some(f64::from(figures.number())),
            Self::Count => Some(total.count as f64),
            Self::Rate => figures.rate(),
            Self::Switches => Some(total.switches as f64),
            Self::Threads => Some(figures.lanes().count() as f64),
            Self::Bytes | Self::Flops | Self::Intensity | Self::Items => self.of_amounts(figures),
            Self::PerItem => figures.per_item(),
            Self::Imbalance => figures.imbalance(),
            Self::On | Self::Process | Self::Name | Self::Bar | Self::Trend => None,
        };
        value.map(|value| match self.measure() {
            Some(Measure::Percent) => value * 100.0,
            Some(Measure::Seconds) => value / figures.ticks_per_second(),
            Some(Measure::Number) | None => value,
        })
    }

    /// What it tells of a point's amounts; none of other columns.
    pub fn of_amounts(self, figures: &Figures) -> Option<f64> {
        match self {
            Self::Bytes => figures.amount(BYTES)?.per_cpu_second,
            Self::Flops => figures.amount(FLOPS)?.per_cpu_second,
            Self::Intensity => figures.intensity(),
            Self::Items => figures.own_amount()?.per_cpu_second,
            _ => None,
        }
    }

    /// Compares two points by this column, the natural way up. What has no
    /// figure counts as less than every figure.
    pub fn compare(self, a: &Figures, b: &Figures) -> Ordering {
        self.compare_by(a, b, Figures::quantiles)
    }

    fn compare_by(
        self,
        a: &Figures,
        b: &Figures,
        quantiles: fn(&Figures) -> Option<Quantiles>,
    ) -> Ordering {
        let by = |key: fn(&Figures) -> Option<f64>| {
            let key = |figures| key(figures).unwrap_or(f64::NEG_INFINITY);
            key(a).total_cmp(&key(b))
        };
        match self {
            Self::On => state_rank(a.state()).cmp(&state_rank(b.state())),
            Self::Id => a.id().cmp(&b.id()),
            Self::Process => {
                let key = |f: &Figures| f.process().map(|p| (p.name.clone(), p.pid));
                key(a).cmp(&key(b))
            }
            // Points without a name come behind those with one, by their ids.
            Self::Name => {
                let key = |figures: &Figures| figures.point().name.is_empty();
                key(a).cmp(&key(b)).then_with(|| a.point().name.cmp(&b.point().name))
            }
            Self::Count => a.total().count.cmp(&b.total().count),
            Self::Rate => by(Figures::rate),
            Self::Load | Self::Bar | Self::Trend => by(Figures::load),
            Self::Excl => a.total().exclusive.cmp(&b.total().exclusive),
            Self::Avg => by(Figures::mean),
            Self::Min => by(|f| f.is_used().then_some(f.total().min as f64)),
            Self::Max => a.total().max.cmp(&b.total().max),
            Self::P50 => quantiles(a).map(|q| q.p50).cmp(&quantiles(b).map(|q| q.p50)),
            Self::P90 => quantiles(a).map(|q| q.p90).cmp(&quantiles(b).map(|q| q.p90)),
            Self::P99 => quantiles(a).map(|q| q.p99).cmp(&quantiles(b).map(|q| q.p99)),
            Self::Off => by(Figures::off_share),
            Self::Incl => a.total().inclusive.cmp(&b.total().inclusive),
            Self::Dev => by(Figures::deviation),
            Self::Last => a.total().last.cmp(&b.total().last),
            Self::Smooth => by(smoothed),
            Self::Switches => a.total().switches.cmp(&b.total().switches),
            Self::Threads => a.lanes().count().cmp(&b.lanes().count()),
            Self::Bytes | Self::Flops | Self::Intensity | Self::Items => {
                let key = |figures| self.of_amounts(figures).unwrap_or(f64::NEG_INFINITY);
                key(a).total_cmp(&key(b))
            }
            Self::PerItem => by(Figures::per_item),
            Self::Imbalance => by(Figures::imbalance),
        }
    }
}

/// The columns that a screen has room for, and the room of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The columns, from left to right.
    pub columns: Vec<Column>,
    name: usize,
    bar: usize,
    trend: usize,
}

impl Fit {
    /// What of these columns fits into `width`, one blank between them, for points whose
    /// names take up to `names` columns, of one process or of several. Of the default
    /// columns the least needed give way first; of others, which somebody has put in
    /// their order, the last.
    pub fn new(columns: &[Column], width: usize, names: usize, several: bool) -> Self {
        let by_rank = columns == Column::DEFAULT;
        let mut columns = Column::shown(columns, several && width >= PROCESS_MIN);
        let least = names.clamp(NAME_MIN, NAME_MIN.max(width / NAME_SHARE));
        loop {
            let fixed: usize = columns.iter().filter_map(|column| column.width()).sum();
            let used = fixed + columns.len().saturating_sub(1);
            let room = width.saturating_sub(used);
            let mut dispensable = columns.iter().enumerate().filter(|(_, column)| !column.stays());
            let last = match by_rank {
                true => dispensable.max_by_key(|(_, column)| column.dispensable()),
                false => dispensable.next_back(),
            };
            match last {
                Some((place, _)) if room < least => drop(columns.remove(place)),
                _ => return Self::with_room(columns, room, names.max(NAME_MIN)),
            }
        }
    }

    /// What the names do not need goes to the bar and the trend.
    fn with_room(columns: Vec<Column>, room: usize, names: usize) -> Self {
        let name = room.min(names).min(NAME_MOST);
        let mut left = room - name;
        let mut width = |column: Column, most: usize| {
            let more = if columns.contains(&column) { left.min(most) } else { 0 };
            left -= more;
            column.width().unwrap_or(0) + more
        };
        let (bar, trend) = (width(Column::Bar, BAR_MORE), width(Column::Trend, TREND_MORE));
        Self { columns, name, bar, trend }
    }

    /// The room of one of them.
    pub fn width(&self, column: Column) -> usize {
        match column {
            Column::Name => self.name,
            Column::Bar => self.bar,
            Column::Trend => self.trend,
            other => other.width().unwrap_or(self.name),
        }
    }
}

/// A process in its column: the id whole, the name as far as there is room, and
/// what has become of it.
fn process_text(process: &Process) -> String {
    let ended = match process.state {
        ProcessState::Running => "",
        ProcessState::Exited => " ended",
        ProcessState::Crashed => " died",
    };
    let rest = format!("[{}]{ended}", process.pid);
    let room = Column::Process.width().unwrap_or(0).saturating_sub(rest.len());
    format!("{}{rest}", crate::text::cut(&process.name, room, '~'))
}

/// A point's state in a word.
pub fn state_word(state: PointState) -> &'static str {
    match state {
        PointState::On => "on",
        PointState::Off => "off",
        PointState::InvalidBeginBegin => "!",
    }
}

/// The exponential average of a point that has one.
fn smoothed(figures: &Figures) -> Option<f64> {
    (figures.is_used() && figures.point().alpha.is_some()).then(|| figures.total().average)
}

fn state_rank(state: PointState) -> u8 {
    match state {
        PointState::InvalidBeginBegin => 0,
        PointState::On => 1,
        PointState::Off => 2,
    }
}

/// What the table is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    /// The column.
    pub column: Column,
    /// Greatest first.
    pub descending: bool,
}

impl Sorting {
    /// By a column in its natural direction.
    pub fn by(column: Column) -> Self {
        Self { column, descending: column.greatest_first() }
    }

    /// By the next of these columns to the right (or left) that sorts.
    pub fn moved(self, right: bool, columns: &[Column]) -> Self {
        let sortable: Vec<_> = columns.iter().copied().filter(|c| c.sorts()).collect();
        let place = sortable.iter().position(|c| *c == self.column).unwrap_or(0);
        let n = sortable.len();
        Self::by(sortable[(place + if right { 1 } else { n - 1 }) % n])
    }

    /// The same column the other way round.
    pub fn inverted(self) -> Self {
        Self { descending: !self.descending, ..self }
    }

    /// The ids of these points in order. Equals keep the order of their ids, but
    /// those of one process are told apart by what they burn.
    pub fn order<'a>(self, points: impl IntoIterator<Item = &'a Figures>) -> Vec<u32> {
        self.order_by(points.into_iter().collect(), Figures::quantiles)
    }

    /// The same within the time of a frame, however many threads have measured
    /// these points: where there is too much to work all quantiles out anew, those
    /// that are oldest are, and the others are the last known ones.
    pub fn order_at_once<'a>(self, points: impl IntoIterator<Item = &'a Figures>) -> Vec<u32> {
        self.order_within(BUCKETS_AT_ONCE, points.into_iter().collect())
    }

    fn order_within(self, mut buckets: usize, points: Vec<&Figures>) -> Vec<u32> {
        if matches!(self.column, Column::P50 | Column::P90 | Column::P99) {
            let mut old: Vec<(u32, &Figures)> =
                points.iter().filter_map(|f| Some((f.quantiles_ago()?, *f))).collect();
            old.sort_by_key(|(ago, _)| Reverse(*ago));
            for (_, figures) in old {
                if buckets == 0 {
                    break;
                }
                buckets = buckets.saturating_sub(figures.bucket_count());
                figures.quantiles();
            }
        }
        self.order_by(points, Figures::quantiles_lately)
    }

    fn order_by(
        self,
        mut sorted: Vec<&Figures>,
        quantiles: fn(&Figures) -> Option<Quantiles>,
    ) -> Vec<u32> {
        sorted.sort_by(|a, b| {
            let order = self.column.compare_by(a, b, quantiles);
            let order = if self.descending { order.reverse() } else { order };
            // What burns now stands above what has ended.
            let order = match self.column {
                Column::Load | Column::Rate => a.is_ended().cmp(&b.is_ended()).then(order),
                _ => order,
            };
            match self.column {
                Column::Process => order.then_with(|| Column::Load.compare_by(b, a, quantiles)),
                _ => order,
            }
        });
        sorted.into_iter().map(Figures::id).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::Model;
    use crate::snapshot::{Cell, Stats};
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;

    fn model() -> Model {
        let (mut source, mut model) = (Synthetic::new(), Model::default());
        for _ in 0..3 {
            model.fold(source.poll().unwrap());
        }
        model
    }

    #[test]
    fn columns_always_fit_and_the_most_needed_stay() {
        for width in 24..200 {
            for all in [&Column::DEFAULT[..], &Column::ALL] {
                for several in [false, true] {
                    let fit = Fit::new(all, width, width % 70, several);
                    assert_eq!(fit.columns.contains(&Column::Process), several && width >= 60);
                    let used: usize = fit.columns.iter().map(|column| fit.width(*column)).sum();
                    assert!(used + fit.columns.len() - 1 <= width, "{width}");
                    assert!([Column::On, Column::Name].iter().all(|c| fit.columns.contains(c)));
                }
            }
        }
        let narrow = Fit::new(&Column::DEFAULT, 38, 20, false);
        assert!(narrow.columns.contains(&Column::Load));
        assert_eq!(Fit::new(&Column::DEFAULT, 120, 20, false).columns.len(), 13);
        // The user's own order is kept, and gives way from its end.
        let own = [Column::On, Column::P99, Column::Name, Column::Dev, Column::Load];
        assert_eq!(Fit::new(&own, 60, 20, false).columns, own);
        assert_eq!(Fit::new(&own, 32, 10, false).columns, own[..4]);
        let wide = Fit::new(&Column::DEFAULT, 300, 20, false);
        assert!(wide.width(Column::Trend) > 40 && wide.width(Column::Bar) > 16);
        assert_eq!(wide.width(Column::Name), 20);
    }

    #[test]
    fn every_sorting_orders_every_point() {
        let model = model();
        for column in Column::ALL {
            let sorting = Sorting::by(column);
            let order = sorting.order(model.points());
            assert_eq!(order.len(), model.points().len());
            let sorted = order.windows(2).all(|pair| {
                let [a, b] = [pair[0], pair[1]].map(|id| model.point(id).unwrap());
                let order = column.compare(a, b);
                order.is_eq() || order.is_gt() == sorting.descending
            });
            assert!(sorted, "{column:?}");
        }
    }

    #[test]
    fn quantiles_of_too_many_threads_are_worked_out_in_turn() {
        let snapshot = |poll: u64, middles: [u64; 3]| {
            let mut snapshot = Synthetic::new().poll().unwrap();
            snapshot.elapsed_ticks += poll * 1000;
            snapshot.points.truncate(3);
            let cell = |(point, low): (usize, u64)| {
                let (count, max) = (poll + 1, u64::MAX);
                let stats = Stats { count, min: 0, max, ..Stats::default() };
                let histogram = vec![crate::snapshot::Bucket { low, width: 1, count }];
                Arc::new(Cell { point: point as u32, stats, histogram, ..Cell::default() })
            };
            snapshot.cells = middles.into_iter().enumerate().map(cell).collect();
            snapshot
        };
        let sorting = Sorting::by(Column::P99);
        let mut model = Model::default();
        let order = |model: &Model| sorting.order_within(1, model.points().iter().collect());
        model.fold(snapshot(0, [30, 20, 10]));
        assert_eq!(order(&model), [0, 1, 2], "the first are all exact");
        let mut orders = Vec::new();
        for poll in 1..4 {
            model.fold(snapshot(poll, [10, 20, 30]));
            orders.push(order(&model));
        }
        assert_eq!(orders, [[1, 0, 2], [1, 0, 2], [2, 1, 0]], "one in each");
        // What has to be exact is.
        model.fold(snapshot(4, [30, 20, 10]));
        assert_eq!(sorting.order(model.points()), [0, 1, 2]);
    }

    #[test]
    fn points_without_a_name_show_their_number_behind_the_others() {
        let mut source = Synthetic::new();
        for id in [2, 5] {
            source.snapshot_mut().points[id].name.clear();
        }
        let mut model = Model::default();
        model.fold(source.poll().unwrap());
        let scale = Scale { ticks_per_second: 1e9, unit: units::Unit::Time };
        assert_eq!(Column::Name.text(model.point(5).unwrap(), &scale), "#5");
        let order = Sorting::by(Column::Name).order(model.points());
        assert_eq!(order[order.len() - 2..], [2, 5]);
    }

    #[test]
    fn what_is_too_short_to_measure_is_not_called_nothing() {
        let scale = Scale { ticks_per_second: 2.6e9, unit: units::Unit::Time };
        assert_eq!((scale.single(0.0), scale.single(2.0)), ("<1ns".into(), "<1ns".into()));
        assert_eq!(scale.single(26.0), "10.0ns");
        assert_eq!(Scale { unit: units::Unit::Cycles, ..scale }.single(0.0), "0cy");
    }

    #[test]
    fn a_mean_that_is_not_to_be_believed_is_marked() {
        let (mut source, mut model) = (Synthetic::new(), Model::default());
        // Ten of these are more than lz.match takes, which is some 10,000 ticks, and less
        // than io.crc with its 31,000.
        source.snapshot_mut().clock.overhead_pair = 2_000;
        model.fold(source.poll().unwrap());
        let scale = Scale { ticks_per_second: 2.6e9, unit: units::Unit::Time };
        let text = |id| Column::Avg.text(model.point(id).unwrap(), &scale);
        assert_eq!(text(5).find('~'), Some(0), "{}", text(5));
        assert_eq!(text(3).find('~'), None, "{}", text(3));
    }

    #[test]
    fn walking_through_the_columns_visits_each_and_returns() {
        let start = Sorting::by(Column::Load);
        let (mut sorting, mut visited) = (start, Vec::new());
        let all = &Column::shown(&Column::DEFAULT, false);
        for _ in 0..11 {
            assert_eq!(sorting.moved(true, all).moved(false, all), sorting);
            assert!(!visited.contains(&sorting.column), "{:?} comes twice", sorting.column);
            visited.push(sorting.column);
            sorting = sorting.moved(true, all);
        }
        assert_eq!(sorting, start);
        assert_eq!(start.inverted().inverted(), start);
    }
}

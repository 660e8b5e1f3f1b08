//! The columns of the table of points: their names, contents and order, and which give way first on
//! a narrow screen. The screen, the text exports and the filter read this list; a column is
//! declared only here.

pub mod sorting;

use std::cmp::Ordering;

pub use crate::grid::Kind;
use crate::grid::{self, CellContext, Fitted, Grid, Table, table};
use crate::{BYTES, FLOPS, Figures, Model, Quantiles};
use pfp_read::snapshot::{OPENMP, PointFlag, PointState, Process, ProcessState};
use pfp_read::text;
use pfp_read::units::{self, NONE, Scale};
use pfp_read::waits::PointReport;

type PointColumn = grid::TableColumn<Figures, With>;

/// The context in which the cells of a point are written.
pub struct With {
    scale: Scale,
    /// How the quantiles of a point are obtained.
    quantiles: fn(&Figures) -> Option<Quantiles>,
}

impl With {
    fn quantile(&self, figures: &Figures, of: fn(Quantiles) -> u64) -> Option<f64> {
        (self.quantiles)(figures).map(|quantiles| of(quantiles) as f64)
    }
}

impl CellContext for With {
    fn scale(&self) -> Scale {
        self.scale
    }
}

/// A context for values, which need no unit.
const RAW: With = by(Figures::quantiles);

const fn by(quantiles: fn(&Figures) -> Option<Quantiles>) -> With {
    With { scale: Scale { ticks_per_second: 1.0, unit: units::Unit::Time }, quantiles }
}

/// Minimum width of a screen with a column of processes.
const PROCESS_MIN: usize = 60;
/// Minimum width of a name.
const NAME_MIN: usize = 10;
/// Usual width of a name on a wide screen: enough for a short name and the words that follow it.
const NAME_USUAL: usize = 18;
/// Minimum share of the width for names that need it, as a divisor.
const NAME_SHARE: usize = 5;
/// Maximum width of a name: figures far away from their name are hard to read.
const NAME_MAX: usize = 64;
/// Maximum number of columns that the bar and the trend get beyond their least width.
const BAR_MORE: usize = 12;
const TREND_MORE: usize = 100;

/// Declares the columns, the list of all, and the properties of each.
macro_rules! columns {
    ($(
        $name:ident = $key:expr, $title:expr, $width:expr, $kind:ident($of:expr)
            $(.$more:ident($($argument:expr),*))*, $meaning:expr;
    )*) => {
        /// One column of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Column {
            $(#[doc = $meaning] $name,)*
        }

        impl Column {
            /// All columns.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }

        /// The table of points.
        pub static TABLE: Table<Figures, With> = table! {
            Figures, With;
            $($key, $title, $width, $kind($of)$(.$more($($argument),*))*, $meaning;)*
        };
    };
}

columns! {
    On = "on", "On", 3, Text(|f, _| state_word(f.state()).into()).right().rank(0).stays()
        .order(|a, b| state_rank(a.state()).cmp(&state_rank(b.state()))), "whether it measures";
    Id = "id", "ID", 5, Whole(|f, _| Some(f.number().into())).order(|a, b| a.id().cmp(&b.id())),
        "its number";
    Process = "process", "Process", 20, Text(process_text).rank(0).stays()
        .order(|a, b| process_key(a).cmp(&process_key(b))), "its process, if there are several";
    Host = "host", "Host", 16, Text(|f, _| short(host_of(f))).rank(10)
        .order(|a, b| host_of(a).cmp(&host_of(b))),
        "the machine of its process, if there are several";
    Name = "name", "Name", NAME_MIN, Text(name_text).rank(0).stays()
        .order(|a, b| name_key(a).cmp(&name_key(b))), "its name";
    Domain = "domain", "Domain", 16, Text(|f, _| short(f.point().domain())).rank(6)
        .order(|a, b| a.point().domain().cmp(&b.point().domain())),
        "domain of an annotation, such as nvtx:app";
    Count = "count", "Count", 6, Count(|f, _| Some(f.total().count as f64)).rank(4).summed(),
        "measurements";
    Rate = "rate", "/s", 5, Rate(|f, _| f.rate()).rank(2)
        .exported("rate_per_s").text(rate_text).summed(), "measurements per second";
    Load = "load", "Load%", 6, Share(|f, _| f.load()).rank(1)
        .exported("load_cpus").text(load_text).summed(), "share of one CPU, smoothed";
    Bar = "bar", "Bar", 8, Picture(|f, _| f.load()).rank(5).left(8 + BAR_MORE),
        "its load as a bar, on one scale for all rows";
    Trend = "trend", "Trend", 8, Picture(|f, _| f.load()).rank(12).left(8 + TREND_MORE),
        "load of the last polls, on the same scale";
    Excl = "excl", "Excl", 7, Sum(|f, _| exclusive(f)).rank(13).text(exclusive_text).summed(),
        "own time, without nested regions that are on";
    Avg = "avg", "CPU avg", 7, Time(|f, _| f.mean()).rank(3).text(mean_text),
        "mean of a measurement";
    Min = "min", "CPU min", 7, Time(|f, _| used(f, f.total().min)), "shortest measurement";
    Max = "max", "CPU max", 7, Time(|f, _| used(f, f.total().max)).rank(11), "longest measurement";
    P50 = "p50", "CPU p50", 7, Time(|f, with| with.quantile(f, |q| q.p50)).rank(14), "median";
    P90 = "p90", "CPU p90", 7, Time(|f, with| with.quantile(f, |q| q.p90)), "90th percentile";
    P99 = "p99", "CPU p99", 7, Time(|f, with| with.quantile(f, |q| q.p99)).rank(7),
        "99th percentile";
    TimeTotal = "time", "Time", 7, Sum(|f, _| f.time()),
        "time by the clock from begin to end, with nested regions";
    TimeAvg = "time-avg", "Time avg", 8, Time(|f, _| f.mean_time()).rank(15),
        "mean time by the clock from begin to end";
    TimeMax = "time-max", "Time max", 8, Time(|f, _| f.longest_time()).rank(16),
        "longest time by the clock, up to now for an open region";
    Open = "open", "Open", 5, Whole(|f, _| Some(f.open().map_or(0.0, |open| open.count as f64))),
        "regions that are open now";
    Off = "off", "Off%", 5, Share(|f, _| f.off_share()).rank(8).exported("off_share"),
        "share of wall time off the CPU";
    Incl = "incl", "Incl", 7, Sum(|f, _| used(f, f.total().inclusive)).text(inclusive_text),
        "time with nested regions and their overhead";
    Dev = "dev", "CPU dev", 7, Time(|f, _| f.deviation()), "standard deviation";
    Last = "last", "CPU last", 8, Time(|f, _| used(f, f.total().last)), "last measurement";
    Ewma = "smooth", "EWMA", 7,
        Time(|f, _| (f.is_used() && f.point().alpha.is_some()).then(|| f.total().average_ticks())),
        "exponential average of a measurement (alpha)";
    Switches = "switches", "Switch", 7, Count(|f, _| Some(f.total().switches as f64)).summed(),
        "times its threads were off the CPU";
    Threads = "thr", "Thr", 5, Whole(|f, _| Some(f.threads() as f64)).exported("threads"),
        "threads that measured it";
    Bytes = "bytes", "B/s", 7, Rate(|f, _| f.amount(BYTES)?.per_cpu_second)
        .exported("bytes_per_cpu_s"), "bytes per second of its time";
    Flops = "flops", "FLOP/s", 7, Rate(|f, _| f.amount(FLOPS)?.per_cpu_second)
        .exported("flops_per_cpu_s"), "floating-point operations per second";
    Intensity = "intensity", "FLOP/B", 7, Rate(|f, _| f.intensity()).exported("flops_per_byte"),
        "floating-point operations per byte";
    Items = "items", "Item/s", 7, Rate(|f, _| f.own_amount()?.per_cpu_second)
        .exported("items_per_cpu_s"), "items, or another amount, per second";
    PerItem = "per-item", "/Item", 7, Sum(|f, _| f.per_item()).exported("per_item"),
        "time per item";
    AllocsPerCall = "allocs-per-call", "Alloc/call", 10,
        Rate(|f, _| f.allocs_per_call(|allocs| allocs.allocs)).exported("allocs_per_call"),
        "allocations per call, without nested regions that count theirs";
    BytesPerCall = "bytes-per-call", "B/call", 7,
        Rate(|f, _| f.allocs_per_call(|allocs| allocs.bytes)).exported("alloc_bytes_per_call"),
        "allocated bytes per call, without nested regions that count theirs";
    AllocRate = "alloc-rate", "Alloc/s", 7, Rate(|f, _| f.alloc_rate())
        .exported("allocs_per_s").summed(), "allocations per second";
    Allocs = "allocs", "Allocs", 7, Count(|f, _| Some(f.allocs()?.allocs as f64)).summed(),
        "allocations, without nested regions that count theirs";
    AllocBytes = "alloc-bytes", "Alloc B", 7, Count(|f, _| Some(f.allocs()?.bytes as f64))
        .exported("alloc_bytes").summed(),
        "allocated bytes, without nested regions that count theirs";
    FreedBytes = "freed-bytes", "Freed B", 7, Count(|f, _| Some(f.allocs()?.freed as f64))
        .exported("freed_bytes").summed(), "freed bytes, without nested regions that count theirs";
    AllocsIncl = "allocs-incl", "Allocs incl", 11,
        Count(|f, _| Some(f.allocs()?.allocs_inclusive as f64)).exported("allocs_inclusive"),
        "allocations, with nested regions";
    AllocBytesIncl = "alloc-bytes-incl", "Alloc B incl", 12,
        Count(|f, _| Some(f.allocs()?.bytes_inclusive as f64)).exported("alloc_bytes_inclusive"),
        "allocated bytes, with nested regions";
    Live = "live", "Live B", 7, Count(|f, _| f.live_bytes()).exported("live_bytes").summed(),
        "allocated bytes that are not freed yet (live), estimated by samples";
    LiveGrown = "live-grown", "Live +", 7, Rate(|f, _| f.live_grown())
        .exported("live_bytes_grown").summed(),
        "growth of the live bytes since the mark (m), or since the viewer attached or the last reset";
    LiveGrowth = "live-growth", "Live +/s", 8, Rate(|f, _| f.live_growth())
        .exported("live_bytes_per_s").summed(), "growth of the live bytes per second, since the same";
    LiveAge = "live-age", "Live age", 8, Sum(|f, _| f.live_age())
        .exported("live_age"), "mean age of the live bytes";
    LargestAlloc = "largest-alloc", "Largest", 7, Count(|f, _| Some(f.allocs()?.largest as f64))
        .exported("largest_alloc"), "bytes of the largest allocation, also in nested regions";
    Imbalance = "imbalance", "Imbal", 7, Rate(|f, _| f.imbalance()).rank(9),
        "busiest process or thread, divided by the mean (--sum, OpenMP)";
    Waits = "waits", "Waits for", 16, Text(waits_text).left(32).cut().rank(9)
        .order(|a, b| waited(a).total_cmp(&waited(b))),
        "what it waits for most, with the share of its time";
    Waited = "waited", "Waited", 7, Sum(|f, _| f.waited()).summed(),
        "time its threads waited since they were first sampled";
    Queued = "queued", "Queued", 7, Sum(|f, _| f.queued()).summed(),
        "time its threads were in the run queue since they were first sampled";
}

/// The unit of a column's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Shares, in per cent.
    Percent,
    /// Times.
    Seconds,
    /// Anything else.
    Number,
}

/// Properties that only some models have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Available {
    /// The model has several processes.
    pub processes: bool,
    /// The model has processes of several machines.
    pub hosts: bool,
    /// The model has points in domains of annotations.
    pub domains: bool,
    /// The model has points whose load can be spread unevenly: sums over processes, parallel
    /// regions.
    pub imbalance: bool,
    /// A point of the model counts allocations, or has counted some since its last reset.
    pub allocs: bool,
    /// The model has the waits of its points.
    pub waits: bool,
    /// The model has, or will have, the waits of its points since the first sample.
    pub wait_totals: bool,
}

impl Available {
    /// The properties of a model.
    pub fn of(model: &Model) -> Self {
        let domains = || model.points().iter().filter_map(|figures| figures.point().domain());
        let is_sum = model.points().first().is_some_and(|figures| figures.is_of_sum());
        let members = model.snapshot().map_or(&[][..], |snapshot| &snapshot.process.members);
        let has_processes = model.has_processes();
        let waits = model.snapshot().is_some_and(|snapshot| snapshot.waits.is_some());
        Self {
            processes: has_processes,
            hosts: has_processes && members.iter().any(|it| it.host != members[0].host),
            domains: domains().next().is_some(),
            allocs: model
                .points()
                .iter()
                .any(|figures| figures.has(PointFlag::CountsAllocs) || figures.allocs().is_some()),
            imbalance: is_sum || domains().any(|domain| domain == OPENMP),
            waits,
            // Reports of several processes have no totals.
            wait_totals: waits && members.is_empty(),
        }
    }
}

/// The mark before a mean that is too short to be exact; see [`Figures::is_short`].
const SHORT: &str = "~";

impl Column {
    /// The table's columns unless the user chooses others, from left to right.
    pub const DEFAULT: [Self; 18] = [
        Self::On,
        Self::Process,
        Self::Host,
        Self::Name,
        Self::Domain,
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
        Self::Waits,
        Self::Imbalance,
    ];

    /// The columns about time by the clock, from left to right. On a narrow screen, the last ones
    /// are dropped first.
    pub const TIMES: [Self; 15] = [
        Self::On,
        Self::Process,
        Self::Name,
        Self::Load,
        Self::Rate,
        Self::TimeAvg,
        Self::TimeMax,
        Self::Off,
        Self::Waits,
        Self::Open,
        Self::Waited,
        Self::Queued,
        Self::TimeTotal,
        Self::Count,
        Self::Imbalance,
    ];

    /// The columns of the view of allocations, from left to right. The first five are not about
    /// allocations.
    pub const ALLOCS: [Self; 18] = [
        Self::On,
        Self::Process,
        Self::Name,
        Self::Load,
        Self::Rate,
        Self::AllocsPerCall,
        Self::BytesPerCall,
        Self::AllocRate,
        Self::Live,
        Self::LiveGrown,
        Self::LiveGrowth,
        Self::LiveAge,
        Self::Allocs,
        Self::AllocBytes,
        Self::FreedBytes,
        Self::AllocsIncl,
        Self::AllocBytesIncl,
        Self::LargestAlloc,
    ];

    /// The columns of output for other programs (JSON and CSV), unless the user chooses others.
    pub const PRINTED: [Self; 23] = [
        Self::On,
        Self::Id,
        Self::Process,
        Self::Host,
        Self::Name,
        Self::Domain,
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
        Self::Allocs,
        Self::AllocBytes,
        Self::FreedBytes,
        Self::AllocsIncl,
        Self::AllocBytesIncl,
        Self::Live,
        Self::Imbalance,
    ];

    /// Whether the column is about allocations, which must be counted.
    pub fn is_of_allocs(self) -> bool {
        Self::ALLOCS[5..].contains(&self)
    }

    /// Whether the column is about waits, which must be sampled.
    pub fn is_of_waits(self) -> bool {
        matches!(self, Self::Waits | Self::Waited | Self::Queued)
    }

    /// How the column's cells are written, sorted and exported.
    pub fn spec(self) -> &'static PointColumn {
        &TABLE.0[self as usize]
    }

    /// The title of the column in the table's heading.
    pub fn title(self) -> &'static str {
        self.spec().heading.title
    }

    /// The name of the column on the command line and in the settings file.
    pub fn word(self) -> &'static str {
        self.spec().heading.key
    }

    /// The kind of the column's cells.
    pub fn kind(self) -> Kind {
        self.spec().kind
    }

    /// What the column shows, in a few words.
    pub fn meaning(self) -> &'static str {
        self.spec().heading.meaning
    }

    /// The column with this name.
    pub fn of_word(word: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|column| column.word() == word).ok_or_else(|| {
            let all: Vec<_> = Self::ALL.iter().map(|column| column.word()).collect();
            let all = all.join(", ");
            format!("expected columns among {all}, found {word}")
        })
    }

    /// These columns without duplicates, and with the columns that every table has.
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

    /// The columns that have something to show in this model.
    pub fn shown(columns: &[Self], available: Available) -> Vec<Self> {
        let says_something = |column: &Self| match column {
            Self::Process => available.processes,
            Self::Host => available.hosts,
            Self::Domain => available.domains,
            Self::Imbalance => available.imbalance,
            Self::Waits => available.waits,
            column if column.is_of_allocs() => available.allocs,
            Self::Waited | Self::Queued => available.wait_totals,
            _ => true,
        };
        columns.iter().copied().filter(says_something).collect()
    }

    /// Whether the column is a picture, which only the screen can show.
    pub fn is_drawn(self) -> bool {
        self.kind() == Kind::Picture
    }

    /// Whether the user can sort by the column.
    pub fn sorts(self) -> bool {
        self.spec().heading.sorts.is_some()
    }

    /// The cell of a point as text. The screen draws the state and the pictures itself, as glyphs.
    pub fn text(self, figures: &Figures, scale: &Scale) -> String {
        self.spec().cell(figures, &With { scale: *scale, ..RAW })
    }

    /// The unit of the column's figures, for filters such as `load>5`. `None` if the column has
    /// words.
    pub fn measure(self) -> Option<Measure> {
        match self.kind() {
            Kind::Text | Kind::Picture => None,
            Kind::Share | Kind::Points | Kind::Change => Some(Measure::Percent),
            Kind::Time | Kind::Sum => Some(Measure::Seconds),
            Kind::Count | Kind::Whole | Kind::Rate | Kind::Odds => Some(Measure::Number),
        }
    }

    /// The figure of a point: a share, ticks or a number.
    pub fn value(self, figures: &Figures) -> Option<f64> {
        self.spec().value(figures, &RAW)
    }

    /// The figure of a point: shares in per cent, times in seconds.
    pub fn figure(self, figures: &Figures) -> Option<f64> {
        let value = self.value(figures)?;
        Some(match self.measure()? {
            Measure::Percent => value * 100.0,
            Measure::Seconds => value / figures.ticks_per_second(),
            Measure::Number => value,
        })
    }

    /// Compares two points by this column, ascending. A point without a figure counts as less than
    /// any figure.
    pub fn compare(self, a: &Figures, b: &Figures) -> Ordering {
        self.spec().compare(a, b, &RAW)
    }
}

/// The columns that a screen has room for.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The columns, from left to right.
    pub columns: Vec<Column>,
    /// The grid that aligns the cells of the columns.
    pub grid: Grid,
}

impl Fit {
    /// Fits these columns into `width`, with a blank between them, for names of up to `names`
    /// columns. Room that names do not need goes to the bar and the trend.
    pub fn new(
        columns: &[Column],
        width: usize,
        names: usize,
        mut available: Available,
        ellipsis: char,
    ) -> Self {
        let by_rank = columns == Column::DEFAULT;
        available.processes &= width >= PROCESS_MIN;
        let least = names.clamp(NAME_MIN, NAME_MIN.max(width / NAME_SHARE));
        let mut columns = Column::shown(columns, available);
        // A wide screen shows time by the clock, too.
        if by_rank && let Some(place) = columns.iter().position(|it| *it == Column::Off) {
            columns.splice(place..place, [Column::TimeAvg, Column::TimeMax]);
        }
        let columns = columns.into_iter().map(Column::spec).collect();
        let widths = |column: &PointColumn| match column.heading.key == Column::Name.word() {
            true => (least, names.clamp(NAME_USUAL, NAME_MAX)),
            false => column.width,
        };
        let Fitted { columns, grid, .. } =
            Fitted::new(columns, by_rank, None, (width, ellipsis), widths);
        let columns = columns.iter().filter_map(|it| Column::of_word(it.heading.key).ok());
        Self { columns: columns.collect(), grid }
    }

    /// The width of a column; 0 if the column is not shown.
    pub fn width(&self, column: Column) -> usize {
        let place = self.columns.iter().position(|it| *it == column);
        place.map_or(0, |place| self.grid.slots[place].width)
    }
}

/// Exclusive time. `None` for wall-clock spans, which have no exclusive time.
fn exclusive(figures: &Figures) -> Option<f64> {
    used(figures, figures.total().exclusive).filter(|_| !figures.point().wall)
}

/// The mark that follows the name of a point whose time is not CPU time.
pub fn clock_mark(figures: &Figures) -> &'static str {
    match (figures.point().wall, figures.point().device) {
        (true, _) => " (wall)",
        (false, true) => " (device)",
        (false, false) => "",
    }
}

fn exclusive_text(figures: &Figures, with: &With) -> String {
    let open = figures.open().and_then(|open| open.exclusive);
    let own = so_far(figures, figures.total().exclusive, open);
    Kind::Sum.written(own.filter(|_| !figures.point().wall), &with.scale)
}

fn inclusive_text(figures: &Figures, with: &With) -> String {
    let open = figures.open().and_then(|open| open.on_cpu);
    Kind::Sum.written(so_far(figures, figures.total().inclusive, open), &with.scale)
}

fn mean_text(figures: &Figures, with: &With) -> String {
    let mark = if figures.is_short() { SHORT } else { "" };
    mark.to_owned() + &Kind::Time.written(figures.mean(), &with.scale)
}

fn rate_text(figures: &Figures, with: &With) -> String {
    Kind::Rate.written(figures.rate().filter(|rate| *rate > 0.0), &with.scale)
}

/// The share comes first, since a long reason is cut.
fn waits_text(figures: &Figures, _: &With) -> String {
    let wait = figures.waits().and_then(PointReport::main_wait);
    wait.map_or(String::new(), |(what, share)| format!("{:>4}% {what}", units::percent(share)))
}

fn waited(figures: &Figures) -> f64 {
    figures.waits().and_then(PointReport::main_wait).map_or(0.0, |(_, share)| share)
}

fn name_text(figures: &Figures, with: &With) -> String {
    let name = figures.name();
    match (figures.warnings().as_slice(), open_mark(figures, &with.scale)) {
        ([], _) if figures.point().device => format!("{name}{}", clock_mark(figures)),
        ([], None) => name,
        ([], Some(mark)) => format!("{name} {mark}"),
        (warnings, _) => {
            let words: Vec<_> = warnings.iter().map(|warning| warning.words()).collect();
            format!("{name} {}", words.join(", "))
        }
    }
}

/// The words that follow the name of a point that is open and has never ended: `open 2.00s`.
pub fn open_mark(figures: &Figures, scale: &Scale) -> Option<String> {
    let open = figures.open().filter(|_| !figures.is_used() && !figures.point().device)?;
    let wall = if open.on_cpu.is_none() { " wall" } else { "" };
    Some(format!("open {}{wall}", scale.ticks(open.span as f64)))
}

/// Points without a name come last, by their ids.
fn name_key(figures: &Figures) -> (bool, &str) {
    (figures.point().name.is_empty(), &figures.point().name)
}

fn process_key(figures: &Figures) -> Option<(&str, u32)> {
    figures.process().map(|process| (process.name.as_str(), process.pid))
}

fn load_text(figures: &Figures, _: &With) -> String {
    match (figures.state(), figures.load()) {
        (PointState::Off, load) if load.is_none_or(|load| load < 0.0005) => "off".into(),
        (PointState::InvalidBeginBegin, _) => "INVAL".into(),
        (_, Some(load)) => units::percent(load),
        (_, None) => NONE.into(),
    }
}

fn host_of(figures: &Figures) -> Option<&str> {
    figures.process().map(|process| process.host.as_str())
}

/// Shortens words to 16 columns.
fn short(words: Option<&str>) -> String {
    text::cut_middle(words.unwrap_or_default(), 16, '~')
}

fn process_text(figures: &Figures, _: &With) -> String {
    figures.process().map_or(String::new(), process_in_column)
}

/// A process in its column: the whole id, as much of the name as fits, and its state.
pub fn process_in_column(process: &Process) -> String {
    let ended = match process.state {
        ProcessState::Running if process.stopped => " stopped",
        ProcessState::Running => "",
        ProcessState::Exited | ProcessState::Ended => " ended",
        ProcessState::Crashed => " died",
    };
    let rest = format!("[{}]{ended}", process.pid);
    let room = Column::Process.spec().width.0.saturating_sub(rest.len());
    format!("{}{rest}", pfp_read::text::cut(&process.name, room, '~'))
}

/// A point's state in a word.
pub fn state_word(state: PointState) -> &'static str {
    match state {
        PointState::On => "on",
        PointState::Off => "off",
        PointState::InvalidBeginBegin => "!",
    }
}

/// The value as a figure. `None` for a point without measurements.
fn used(figures: &Figures, value: u64) -> Option<f64> {
    figures.is_used().then_some(value as f64)
}

/// A sum of time. For a point whose regions have never ended, the time of its open regions.
fn so_far(figures: &Figures, value: u64, open: Option<u64>) -> Option<f64> {
    used(figures, value).or(open.filter(|_| !figures.is_used()).map(|ticks| ticks as f64))
}

fn state_rank(state: PointState) -> u8 {
    match state {
        PointState::InvalidBeginBegin => 0,
        PointState::On => 1,
        PointState::Off => 2,
    }
}

#[cfg(test)]
mod tests;

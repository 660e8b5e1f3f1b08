//! The columns of the table of points: what they are called, show and sort by, and how soon
//! they give way on a narrow screen. The screen, the text exports and the filter read this
//! list; a column is declared here and nowhere else.

mod fit;
mod sorting;
mod spec;

use std::cmp::Ordering;
use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;

pub use self::fit::Fit;
pub use self::sorting::Sorting;
pub use self::spec::Kind;
use self::spec::{Spec, Value};
use crate::model::{BYTES, FLOPS, Figures, Model, Quantiles};
use crate::snapshot::{OPENMP, PointState, Process, ProcessState};
use crate::text;
use crate::units::{self, NONE, Scale};

/// Declares the columns, their list and what is known of each.
macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident = $spec:expr;)*) => {
        /// One column of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Column {
            $($(#[$doc])* $name,)*
        }

        impl Column {
            /// All there are.
            pub const ALL: [Self; SPECS.len()] = [$(Self::$name,)*];
        }

        static SPECS: &[Spec] = &[$($spec,)*];
    };
}

columns! {
    /// Whether the point measures.
    On = Spec::new("on", "On", 3, Kind::Text, |_| None, "whether it measures")
        .rank(0)
        .text(|f, _| state_word(f.state()).into())
        .order(|a, b| state_rank(a.state()).cmp(&state_rank(b.state())));
    /// Its id.
    Id = Spec::new("id", "ID", 5, Kind::Whole, |f| Some(f.number().into()), "its number")
        .order(|a, b| a.id().cmp(&b.id()));
    /// Its process; shown only where there are several.
    Process = Spec::new("process", "Process", 20, Kind::Text, |_| None, "its process, where there are several")
        .rank(0)
        .text(|f, _| f.process().map_or(String::new(), process_text))
        .order(|a, b| process_key(a).cmp(&process_key(b)));
    /// Where that runs; shown only where there are several machines.
    Host = Spec::new("host", "Host", 16, Kind::Text, |_| None, "the machine of its process, where there are several")
        .rank(8)
        .text(|f, _| f.process().map_or(String::new(), |process| text::cut_middle(&process.host, 16, '~')))
        .order(|a, b| host_of(a).cmp(&host_of(b)));
    /// Its name.
    Name = Spec::new("name", "Name", 0, Kind::Text, |_| None, "its name")
        .rank(0)
        .text(name_text)
        .order(|a, b| name_key(a).cmp(&name_key(b)));
    /// What its name is in; shown only where any point is in one.
    Domain = Spec::new("domain", "Domain", 16, Kind::Text, |_| None, "what a tool's annotation is in, such as nvtx:app")
        .rank(6)
        .text(|f, _| f.point().domain().map_or(String::new(), |domain| text::cut_middle(domain, 16, '~')))
        .order(|a, b| a.point().domain().cmp(&b.point().domain()));
    /// Measurements.
    Count = Spec::new("count", "Count", 6, Kind::Count, |f| Some(f.total().count as f64), "measurements")
        .rank(4)
        .summed();
    /// Measurements per second.
    Rate = Spec::new("rate", "/s", 5, Kind::Rate, Figures::rate, "measurements per second")
        .rank(2)
        .exported("rate_per_s")
        .text(|f, _| f.rate().filter(|rate| *rate > 0.0).map_or(NONE.into(), units::si))
        .summed();
    /// Share of one CPU.
    Load = Spec::new("load", "Load%", 6, Kind::Share, Figures::load, "share of one CPU, smoothed")
        .rank(1)
        .exported("load_cpus")
        .text(|f, _| load_text(f))
        .summed();
    /// The load as a bar.
    Bar = Spec::new("bar", "Bar", 8, Kind::Picture, Figures::load, "its load as a bar, on one scale for all rows")
        .rank(5);
    /// Load of the last intervals.
    Trend = Spec::new("trend", "Trend", 8, Kind::Picture, Figures::load, "load of the last polls, on the same scale")
        .rank(9);
    /// All exclusive time.
    Excl = Spec::new("excl", "Excl", 7, Kind::Sum, exclusive, "all time, less that of nested regions that are on")
        .rank(10)
        .text(|f, scale| {
            let open = f.open().and_then(|open| open.exclusive);
            let own = so_far(f, f.total().exclusive, open).filter(|_| !f.point().wall);
            own.map_or(NONE.into(), |sum| scale.ticks(sum))
        })
        .summed();
    /// Mean exclusive time.
    Avg = Spec::new("avg", "Avg", 7, Kind::Time, Figures::mean, "mean of a measurement")
        .rank(3)
        .text(|f, scale| {
            let mark = if f.is_short() { SHORT } else { "" };
            mark.to_owned() + &f.mean().map_or(NONE.into(), |mean| scale.single(mean))
        });
    /// Least exclusive time.
    Min = Spec::new("min", "Min", 7, Kind::Time, |f| used(f, f.total().min), "shortest measurement");
    /// Most exclusive time.
    Max = Spec::new("max", "Max", 7, Kind::Time, |f| used(f, f.total().max), "longest measurement")
        .rank(8);
    /// Median of exclusive time.
    P50 = Spec::quantile("p50", |q| q.p50, "half are shorter").rank(11);
    /// 90th percentile of exclusive time.
    P90 = Spec::quantile("p90", |q| q.p90, "90 of 100 are shorter");
    /// 99th percentile of exclusive time.
    P99 = Spec::quantile("p99", |q| q.p99, "99 of 100 are shorter").rank(6);
    /// Share of the span off the CPU.
    Off = Spec::new("off", "Off%", 5, Kind::Share, Figures::off_share, "share of its span off the CPU")
        .rank(7)
        .exported("off_share");
    /// All time with nested regions.
    Incl = Spec::new("incl", "Incl", 7, Kind::Sum, |f| used(f, f.total().inclusive), "all time, with nested regions and their measuring")
        .text(|f, scale| {
            let open = f.open().and_then(|open| open.on_cpu);
            so_far(f, f.total().inclusive, open).map_or(NONE.into(), |sum| scale.ticks(sum))
        });
    /// Standard deviation of exclusive time.
    Dev = Spec::new("dev", "Dev", 7, Kind::Time, Figures::deviation, "standard deviation");
    /// Exclusive time of the last measurement.
    Last = Spec::new("last", "Last", 7, Kind::Time, |f| used(f, f.total().last), "last measurement");
    /// Exponential average of exclusive time.
    Smooth = Spec::new(
        "smooth",
        "EWMA",
        7,
        Kind::Time,
        |f| (f.is_used() && f.point().alpha.is_some()).then(|| f.total().average),
        "exponential average of a measurement (alpha)",
    );
    /// Switches between begin and end.
    Switches = Spec::new("switches", "Switch", 7, Kind::Count, |f| Some(f.total().switches as f64), "times its threads were off the CPU")
        .summed();
    /// Threads that were in it.
    Threads = Spec::new("thr", "Thr", 5, Kind::Whole, |f| f.threads().map(|threads| threads as f64), "threads that were in it")
        .exported("threads");
    /// Bytes in a second of exclusive time, of a point that tells of bytes.
    Bytes = Spec::new("bytes", "B/s", 7, Kind::Rate, |f| f.amount(BYTES)?.per_cpu_second, "bytes in a second of its time")
        .exported("bytes_per_cpu_s");
    /// Floating-point operations in a second of exclusive time.
    Flops = Spec::new("flops", "FLOP/s", 7, Kind::Rate, |f| f.amount(FLOPS)?.per_cpu_second, "floating-point operations in a second")
        .exported("flops_per_cpu_s");
    /// Floating-point operations for each byte.
    Intensity = Spec::new("intensity", "FLOP/B", 7, Kind::Rate, Figures::intensity, "floating-point operations per byte")
        .exported("flops_per_byte");
    /// What else the point counts, in a second of exclusive time.
    Items = Spec::new("items", "Item/s", 7, Kind::Rate, |f| f.own_amount()?.per_cpu_second, "what else it counts, in a second")
        .exported("items_per_cpu_s");
    /// Exclusive time of one of those.
    PerItem = Spec::new("per-item", "/Item", 7, Kind::Sum, Figures::per_item, "time of one of what it counts")
        .exported("per_item");
    /// The greatest exclusive time of a process over the mean, of a point that is summed
    /// over several.
    Imbalance = Spec::new("imbalance", "Imbal", 7, Kind::Rate, Figures::imbalance, "of a sum or a parallel region: the busiest over the mean")
        .rank(7);
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

/// What a model has that not all have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct There {
    /// Several processes.
    pub processes: bool,
    /// Processes of several machines.
    pub hosts: bool,
    /// Points in domains.
    pub domains: bool,
    /// Points whose load may be spread unevenly: sums over processes, parallel regions.
    pub imbalance: bool,
}

impl There {
    /// What a model has.
    pub fn of(model: &Model) -> Self {
        let domains = || model.points().iter().filter_map(|figures| figures.point().domain());
        let is_sum = model.points().first().is_some_and(|figures| figures.is_of_sum());
        let members = model.snapshot().map_or(&[][..], |snapshot| &snapshot.process.members);
        let has_processes = model.has_processes();
        Self {
            processes: has_processes,
            hosts: has_processes && members.iter().any(|it| it.host != members[0].host),
            domains: domains().next().is_some(),
            imbalance: is_sum || domains().any(|domain| domain == OPENMP),
        }
    }
}

/// Before a mean that is not to be believed; see [`Figures::is_short`].
const SHORT: &str = "~";

impl ValueEnum for Column {
    fn value_variants<'a>() -> &'a [Self] {
        static SORTABLE: LazyLock<Vec<Column>> =
            LazyLock::new(|| Column::ALL.into_iter().filter(|column| column.sorts()).collect());
        &SORTABLE
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.word()).help(self.meaning()))
    }
}

impl Column {
    /// Those of the table unless the user chooses others, from left to right.
    pub const DEFAULT: [Self; 17] = [
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
        Self::Imbalance,
    ];

    /// Those that programs get unless the user chooses others.
    pub const PRINTED: [Self; 17] = [
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
        Self::Imbalance,
    ];

    fn spec(self) -> &'static Spec {
        &SPECS[self as usize]
    }

    /// What stands over it.
    pub fn title(self) -> &'static str {
        self.spec().title
    }

    /// What it shows, in a few words.
    pub fn meaning(self) -> &'static str {
        self.spec().meaning
    }

    /// Its name on the command line and in the settings file.
    pub fn word(self) -> &'static str {
        self.spec().word
    }

    /// Its name in CSV and JSON; a time's gets its unit as well.
    pub fn exported(self) -> &'static str {
        self.spec().exported
    }

    /// What its cells hold.
    pub fn kind(self) -> Kind {
        self.spec().kind
    }

    /// The column of that name.
    pub fn of_word(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|column| column.word() == word).ok_or_else(|| {
            let all = Self::ALL.map(Self::word).join(", ");
            format!("expected columns among {all}, found {word}")
        })
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

    /// Those of a table's columns that say something of what there is.
    pub fn shown(columns: &[Self], there: There) -> Vec<Self> {
        let says_something = |column: &Self| match column {
            Self::Process => there.processes,
            Self::Host => there.hosts,
            Self::Domain => there.domains,
            Self::Imbalance => there.imbalance,
            _ => true,
        };
        columns.iter().copied().filter(says_something).collect()
    }

    /// Whether the table always has it.
    pub fn stays(self) -> bool {
        self.spec().rank == 0
    }

    /// Its width on the screen, with room for the sorting mark behind the
    /// title; none for the name, which takes what is left.
    pub fn width(self) -> Option<usize> {
        Some(self.spec().width).filter(|width| *width > 0)
    }

    /// Its rank when room is short: what is greater goes first.
    fn dispensable(self) -> u8 {
        self.spec().rank
    }

    /// Whether it is a picture, and of use on the screen alone.
    pub fn is_drawn(self) -> bool {
        self.kind() == Kind::Picture
    }

    /// Whether the user can sort by it.
    pub fn sorts(self) -> bool {
        !self.is_drawn()
    }

    /// Whether its natural order is the greatest first.
    pub fn greatest_first(self) -> bool {
        self.spec().order.is_none()
    }

    /// Whether it starts at the left.
    pub fn is_text(self) -> bool {
        self != Self::On && matches!(self.kind(), Kind::Text | Kind::Picture)
    }

    /// Whether the sum of all rows says anything.
    pub fn is_summed(self) -> bool {
        self.spec().is_summed
    }

    /// What it shows of a point. The state and the pictures are the drawer's own:
    /// they are glyphs.
    pub fn text(self, figures: &Figures, scale: &Scale) -> String {
        if let Some(text) = self.spec().text.filter(|_| self.is_known(figures)) {
            return text(figures, scale);
        }
        let Some(value) = self.value(figures) else { return NONE.into() };
        match self.kind() {
            Kind::Text | Kind::Picture => String::new(),
            Kind::Share => units::percent(value),
            Kind::Time => scale.single(value),
            Kind::Sum => scale.ticks(value),
            Kind::Count => units::count(value as u64),
            Kind::Whole => value.to_string(),
            Kind::Rate => units::si(value),
        }
    }

    /// What its figures are, for a comparison with one that is typed; none where they are
    /// no figures.
    pub fn measure(self) -> Option<Measure> {
        match self.kind() {
            Kind::Text | Kind::Picture => None,
            Kind::Share => Some(Measure::Percent),
            Kind::Time | Kind::Sum => Some(Measure::Seconds),
            Kind::Count | Kind::Whole | Kind::Rate => Some(Measure::Number),
        }
    }

    /// Whether the snapshot says it of a point, of which it may have left out the rest.
    fn is_known(self, figures: &Figures) -> bool {
        let of_few = matches!(self, Self::Count | Self::Rate | Self::Load | Self::Excl | Self::Avg);
        let says_nothing_of_time =
            self == Self::On || self == Self::Id || self.kind() == Kind::Text;
        of_few || says_nothing_of_time || self.is_drawn() || !figures.is_left_out()
    }

    /// The figure of a point: a share, ticks or a number.
    pub fn value(self, figures: &Figures) -> Option<f64> {
        self.value_by(figures, Figures::quantiles)
    }

    fn value_by(
        self,
        figures: &Figures,
        quantiles: fn(&Figures) -> Option<Quantiles>,
    ) -> Option<f64> {
        if !self.is_known(figures) {
            return None;
        }
        match self.spec().value {
            Value::Of(value) => value(figures),
            Value::Quantile(of) => quantiles(figures).map(|q| of(q) as f64),
        }
    }

    /// The figure of a point, per cent or seconds where it is of that kind.
    pub fn figure(self, figures: &Figures) -> Option<f64> {
        let value = self.value(figures)?;
        Some(match self.measure()? {
            Measure::Percent => value * 100.0,
            Measure::Seconds => value / figures.ticks_per_second(),
            Measure::Number => value,
        })
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
        if let Some(order) = self.spec().order {
            return order(a, b);
        }
        let key = |figures| self.value_by(figures, quantiles).unwrap_or(f64::NEG_INFINITY);
        key(a).total_cmp(&key(b))
    }
}

/// Exclusive time; spans of the clock are no thread's own time.
fn exclusive(figures: &Figures) -> Option<f64> {
    used(figures, figures.total().exclusive).filter(|_| !figures.point().wall)
}

/// What stands behind the name of a point whose time is no CPU's.
pub(crate) fn clock_mark(figures: &Figures) -> &'static str {
    match (figures.point().wall, figures.point().device) {
        (true, _) => " (wall)",
        (false, true) => " (device)",
        (false, false) => "",
    }
}

fn name_text(figures: &Figures, scale: &Scale) -> String {
    let name = figures.name();
    match (figures.trouble().as_slice(), figures.open().filter(|_| !figures.is_used())) {
        ([], _) if figures.point().device => format!("{name}{}", clock_mark(figures)),
        ([], None) => name,
        ([], Some(open)) => {
            let wall = if open.on_cpu.is_none() { " wall" } else { "" };
            format!("{name} open {}{wall}", scale.ticks(open.span as f64))
        }
        (trouble, _) => {
            let words: Vec<_> = trouble.iter().map(|trouble| trouble.words()).collect();
            format!("{name} {}", words.join(", "))
        }
    }
}

/// Points without a name come behind those with one, by their ids.
fn name_key(figures: &Figures) -> (bool, &str) {
    (figures.point().name.is_empty(), &figures.point().name)
}

fn process_key(figures: &Figures) -> Option<(&str, u32)> {
    figures.process().map(|process| (process.name.as_str(), process.pid))
}

fn load_text(figures: &Figures) -> String {
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

/// A figure that only a point with measurements has.
fn used(figures: &Figures, value: u64) -> Option<f64> {
    figures.is_used().then_some(value as f64)
}

/// A sum of time, or, of a point that has never ended, what it has come to.
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

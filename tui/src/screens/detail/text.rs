//! The text about a point: figures, histogram, load history, and tables by lane, amount and caller.

use ratatui::layout::Size;
use ratatui::macros::line;

use super::super::sums;
use super::super::sums::{Sums, SumsTable, TextLine};
use super::{DetailView, load};
use crate::screens::prelude::*;
use crate::styles::beside;
use pfp_model::columns::{self, state_word};
use pfp_model::histogram::HistogramBar;
use pfp_model::threads::own_name;
use pfp_model::{CallEnd, Calls, HistogramWindow, Related, WindowStats, histogram, lost};
use pfp_read::snapshot::{Allocs, PointFlag, Stats};
use pfp_read::text::counted;
use pfp_read::waits::RUNNING;

/// Minimum width for showing the histogram beside the figures.
const WIDE: usize = 80;
/// Width of the figures if the histogram is beside them.
const FIGURES: usize = 35;
/// Minimum width for cumulative shares in the histogram.
const SUMS: usize = 60;
/// Height of the histogram, in lines: the usual one, and the maximum on a higher screen.
const BARS: (usize, usize) = (13, 24);
/// Maximum number of lines about what the point's time is.
const WAITS: usize = 6;
/// Maximum width of a reason, and of what is beside it and its bar.
const WAIT_NAME: usize = 24;
const WAIT_MORE: usize = 40;
/// The tables below the figures. The user can choose the columns of the first one.
pub(super) const TABLES: [&SumsTable; 3] = [&sums::THREADS, &sums::TUPLES, &sums::CALLS];
/// The quantiles that are shown.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

pub(super) fn heading(figures: &Figures, styles: &Styles) -> Line<'static> {
    let point = figures.point();
    let mut rest = format!("  id {}", figures.number());
    if let Some(process) = figures.process() {
        rest += &format!("  of {process}");
        if process.stopped {
            rest += ", stopped";
        }
        if let Some(how) = process.ended() {
            rest += &format!(", {how}");
        }
    }
    if !point.file.is_empty() {
        rest += &format!("  {}", point.place());
    }
    let (state, style) = match figures.state() {
        PointState::InvalidBeginBegin => {
            ("invalid: begun twice without an end; e makes it valid", styles.theme.warn)
        }
        state => (state_word(state), styles.theme.header),
    };
    line![span!(styles.theme.process; " {}", figures.name()), rest, span!(style; "  {state}")]
}

/// The content below the heading.
#[derive(Default)]
pub(super) struct DetailText {
    pub(super) lines: Vec<TextLine>,
    /// The lines of the load history: the first, and the one after the last.
    pub(super) load: (usize, usize),
}

impl DetailText {
    /// The content for a body of this size.
    pub(super) fn new(detail: &DetailView, common: &Common, size: Size) -> Self {
        let mut text = Self::default();
        if let Some(figures) = common.selected() {
            text.fill(detail, common, figures, size);
        }
        text
    }

    fn fill(&mut self, detail: &DetailView, common: &Common, figures: &Figures, size: Size) {
        let (width, height) = (usize::from(size.width), usize::from(size.height));
        let load = load::lines(&detail.load, common, figures, width);
        for remark in figures.remarks() {
            self.add(warning(remark.explanation(), width, &common.styles));
        }
        self.add(losses(common, width));
        let mut pane = Pane {
            detail,
            common,
            figures,
            styles: &common.styles,
            scale: common.scale(),
            quantiles: figures.quantiles_at(QUANTILES.map(|(_, quantile)| quantile)),
            window_stats: detail.window_stats(common),
            bars: 0,
        };
        let left = pane.figures();
        let (waits, above) = (pane.waits(width), pane.amounts(width));
        let allocs = pane.allocs(width);
        let mut below = pane.lanes(width);
        below.extend(pane.calls(width));
        // The histogram gets the remaining lines. The added line is the point's heading.
        let around = [self.lines.len(), waits.len(), above.len(), load.len(), below.len()];
        let others = 1 + allocs.len() + around.iter().sum::<usize>();
        let around = 1 + usize::from(pane.window_stats.is_some());
        let room = height.saturating_sub(others);
        let room =
            if width >= WIDE { room.max(left.len()) } else { room.saturating_sub(left.len()) };
        pane.bars = room.saturating_sub(around).clamp(BARS.0, BARS.1);
        if width >= WIDE {
            self.add(beside(left, pane.histogram(width - FIGURES - 1), FIGURES));
        } else {
            self.add(left);
            self.add(pane.histogram(width));
        }
        self.add(waits);
        self.add(allocs);
        self.lines.extend(above);
        self.add_load(load);
        self.lines.extend(below);
    }

    fn add(&mut self, lines: Vec<Line<'static>>) {
        self.lines.extend(lines.into_iter().map(|line| (line, None)));
    }

    fn add_load(&mut self, load: Vec<Line<'static>>) {
        self.load = (self.lines.len(), self.lines.len() + load.len());
        self.add(load);
    }
}

fn warning(text: &str, width: usize, styles: &Styles) -> Vec<Line<'static>> {
    let text = text::wrapped(text, width.saturating_sub(2));
    text.into_iter().map(|line| Line::styled(format!(" {line}"), styles.theme.warn)).collect()
}

/// Explanations of the losses of the process.
pub(crate) fn losses(common: &Common, width: usize) -> Vec<Line<'static>> {
    let styles = &common.styles;
    let explained = common.model.snapshot().map(lost::explained).unwrap_or_default();
    let lost = |text: &String| warning(&format!("Lost: {text}"), width, styles);
    explained.iter().flat_map(lost).collect()
}

struct Pane<'a> {
    detail: &'a DetailView,
    common: &'a Common,
    figures: &'a Figures,
    styles: &'a Styles,
    scale: Scale,
    /// The values at [`QUANTILES`], of all measurements.
    quantiles: Option<[u64; 4]>,
    /// The measurements in the window of the histogram. `None` if the window has all measurements,
    /// or if its measurements are unknown.
    window_stats: Option<WindowStats>,
    /// Height of the histogram, in lines.
    bars: usize,
}

impl Pane<'_> {
    fn ticks(&self, value: Option<f64>) -> String {
        value.map_or(NONE.into(), |value| self.scale.ticks(value))
    }

    fn single(&self, value: Option<f64>) -> String {
        value.map_or(NONE.into(), |value| self.scale.single(value))
    }

    fn title(&self, text: &str) -> Line<'static> {
        Line::from(span!(self.styles.theme.process; " {text}"))
    }

    /// A line with a figure, and a remark after it.
    fn row(
        &self,
        name: &str,
        value: impl Into<Span<'static>>,
        more: impl Into<Span<'static>>,
    ) -> Line<'static> {
        line![span!(self.styles.theme.faint; " {name:<13}"), value, more]
    }

    fn figures(&self) -> Vec<Line<'static>> {
        let figures = self.figures;
        let total = figures.total();
        let used = |value: u64| self.ticks(figures.is_used().then_some(value as f64));
        let single = |value: u64| self.single(figures.is_used().then_some(value as f64));
        let quantile = |place: usize| self.single(self.quantiles.map(|q| q[place] as f64));
        let deviation = match figures.deviation() {
            Some(deviation) => {
                format!(" {}{}", self.styles.glyphs.plus_minus, self.scale.single(deviation))
            }
            None => String::new(),
        };
        let [mean, longest] =
            [figures.mean_time(), figures.longest_time()].map(|it| self.single(it));
        let times = format!("{mean} / {longest}");
        let smoothed = match figures.point().alpha {
            Some(alpha) => format!("{} alpha {alpha:.3}", self.single(Some(total.average_ticks()))),
            None => "off".into(),
        };
        let share = |share: Option<f64>, of: &str| match share {
            Some(share) => format!(" {}% of {of}", units::percent(share)),
            None => String::new(),
        };
        let inside = (total.inclusive > 0).then(|| total.exclusive as f64 / total.inclusive as f64);
        let rate = figures.rate().map_or(NONE.into(), units::si);
        let mut flags = String::new();
        flags += if figures.has(PointFlag::Fenced) { ", fenced" } else { "" };
        flags += if figures.has(PointFlag::CountsAllocs) { ", allocations counted" } else { "" };
        let rate = format!("  {rate}/s{flags}");
        let load = figures.load().map_or(NONE.into(), |load| format!("{}%", units::percent(load)));
        let is_wall = figures.point().wall;
        // A wall-clock span belongs to no thread, so it does not have these figures.
        let of_threads = ["exclusive", "off CPU", "switches", "time avg/max"];
        let (of, inclusive) =
            if is_wall { (" of the time", "wall time") } else { (" of one CPU", "inclusive") };
        let rows = [
            ("count", units::count(total.count), rate),
            ("load", load, of.into()),
            ("exclusive", used(total.exclusive), share(inside, "incl")),
            (inclusive, used(total.inclusive), String::new()),
            ("off CPU", used(total.off_cpu), share(figures.off_share(), "span")),
            ("switches", units::count(total.switches), String::new()),
            ("time avg/max", times, String::new()),
            ("average", self.single(figures.mean()), deviation),
            ("EWMA", smoothed, String::new()),
            ("min / max", format!("{} / {}", single(total.min), single(total.max)), String::new()),
            ("last", single(total.last), String::new()),
            ("p50 / p90", format!("{} / {}", quantile(0), quantile(1)), String::new()),
            ("p99 / p99.9", format!("{} / {}", quantile(2), quantile(3)), String::new()),
        ];
        let mut lines = vec![self.title("Figures")];
        let rows = rows.into_iter().filter(|(name, ..)| !is_wall || !of_threads.contains(name));
        lines.extend(rows.map(|(name, value, more)| self.row(name, value, more)));
        if let Some(imbalance) = figures.imbalance() {
            let value = format!("{}x (busiest/mean)", units::si(imbalance));
            lines.push(self.row("imbalance", value, ""));
        }
        lines.extend(self.open());
        lines
    }

    /// The window of the histogram, in words.
    fn window(&self) -> String {
        let seconds = self.window_stats.as_ref().map_or(0.0, |window_stats| window_stats.seconds);
        match (self.detail.window, &self.window_stats) {
            (HistogramWindow::All, _) | (_, None) => "all".into(),
            (HistogramWindow::Mark, Some(_)) if seconds == 0.0 => "from now on".into(),
            (HistogramWindow::Mark, Some(window_stats)) => {
                let since = if window_stats.is_marked { "since the mark" } else { "since opened" };
                format!("last {}, {since}", units::duration(seconds))
            }
            (_, Some(_)) => format!("last {}", units::duration(seconds)),
        }
    }

    /// The sums of the window, below its histogram.
    fn summary(&self, window_stats: &WindowStats, quantiles: Option<[u64; 4]>) -> Line<'static> {
        let mut text = format!(" {} calls", units::count(window_stats.total.count));
        if let Some(mean) = window_stats.total.mean() {
            text += &format!(", average {}", self.scale.single(mean));
        }
        if let Some(deviation) = window_stats.total.deviation() {
            let plus_minus = self.styles.glyphs.plus_minus;
            text += &format!(" {plus_minus}{}", self.scale.single(deviation));
        }
        for ((name, _), value) in QUANTILES.iter().zip(quantiles.into_iter().flatten()).take(3) {
            text += &format!(", {name} {}", self.scale.single(value as f64));
        }
        Line::raw(text)
    }

    fn histogram(&self, width: usize) -> Vec<Line<'static>> {
        let total = self.figures.total();
        let (buckets, quantiles) = match &self.window_stats {
            None => (self.figures.buckets(), self.quantiles),
            Some(window_stats) => {
                let wanted = QUANTILES.map(|(_, quantile)| quantile);
                let extremes = (total.min, total.max);
                let found = histogram::quantiles(window_stats.buckets.iter(), extremes, wanted);
                (window_stats.buckets.clone(), found)
            }
        };
        let bars = histogram::bulk_bars(&buckets, self.bars);
        let sums = width >= SUMS;
        let shares = if sums { "share, cumulative" } else { "share" };
        let of = if self.figures.point().wall { "Wall time" } else { "Exclusive" };
        let mut lines = vec![self.title(&format!("{of}, {}: {shares}", self.window()))];
        let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0).max(1) as f64;
        let all = bars.iter().map(|bar| bar.count as f64).sum::<f64>();
        // Columns for the range, the shares, the marks and the blanks between them.
        let shares = if sums { 14 } else { 7 };
        let room = width.saturating_sub(17 + shares + 9).max(4);
        for bar in &bars {
            let range = format!(
                "{:>7}{}{:<7}",
                self.scale.single(bar.low),
                self.styles.glyphs.to,
                self.scale.single(bar.high)
            );
            let drawn = chart::bar(bar.count as f64 / most, room, &self.styles.glyphs);
            lines.push(line![
                format!(" {range} "),
                Span::styled(text::fit(&drawn, room, ' '), self.styles.theme.bar),
                format!(" {:>5}%", units::percent(bar.count as f64 / all)),
                match sums {
                    true => format!(" {:>5}%", units::percent(bar.cumulative)),
                    false => String::new(),
                },
                Span::styled(marks(bar, quantiles), self.styles.theme.key)
            ]);
        }
        if bars.is_empty() {
            lines.push(Line::from(Span::styled(" nothing measured yet", self.styles.theme.faint)));
        }
        if let Some(window_stats) = &self.window_stats {
            lines.push(self.summary(window_stats, quantiles));
        }
        lines
    }

    /// What the point's threads did in the last seconds: ran, were in the run queue, or waited.
    fn waits(&self, width: usize) -> Vec<Line<'static>> {
        let Some(point) = self.figures.waits() else { return Vec::new() };
        let seconds = self.common.waits().map_or(0.0, |report| report.seconds);
        let last = units::duration(seconds);
        let mut lines = vec![self.title(&format!("Time by the clock, last {last}: share"))];
        let mut parts = point.parts();
        let name_width = parts.iter().map(|part| text::width(&part.name)).max().unwrap_or(0);
        let name_width = name_width.clamp(13, WAIT_NAME.max(width / 3));
        let room = width.saturating_sub(name_width + WAIT_MORE).clamp(4, FIGURES);
        let others = parts.split_off(parts.len().min(WAITS));
        let (glyphs, theme) = (&self.styles.glyphs, &self.styles.theme);
        lines.extend(parts.iter().map(|part| {
            let name = text::cut(&text::clean(&part.name), name_width, glyphs.ellipsis);
            let style = if part.name == RUNNING { theme.bar } else { theme.warn };
            let bar = text::fit(&chart::bar(part.share, room, glyphs), room, ' ');
            let threads = part.threads.map(|threads| counted(threads, "thread"));
            let longest = part.longest_s.map(|it| format!("longest {}", units::duration(it)));
            let more: Vec<_> = threads.into_iter().chain(longest).collect();
            line![
                span!(theme.faint; " {}", text::fit(&name, name_width, ' ')),
                format!(" {:>5}% ", units::percent(part.share)),
                Span::styled(bar, style),
                span!(theme.faint; " {}", more.join(", "))
            ]
        }));
        if !others.is_empty() {
            let share = units::percent(others.iter().map(|part| part.share).sum());
            lines.push(Line::raw(format!(" and {} more, {share}%", others.len())));
        }
        lines
    }

    /// One of the tables, in the user's order.
    fn table(
        &self,
        place: usize,
        rows: &[Sums],
        renamed: Option<(&str, &str)>,
        width: usize,
    ) -> Vec<TextLine> {
        let chosen = &self.detail.tables[place];
        let (blanks, table) = (0, TABLES[place]);
        sums::lines(table, chosen, rows, renamed, (blanks, width), &self.scale, self.styles)
    }

    /// What the point's regions have allocated; nothing if they do not count it.
    fn allocs(&self, width: usize) -> Vec<Line<'static>> {
        let Some(allocs) = self.figures.allocs() else { return Vec::new() };
        let name_width = width.saturating_sub(2 + 4 * 9).clamp(20, 40);
        let grid = Grid::new(self.styles.glyphs.ellipsis);
        let grid = grid.left("", 0).left("Allocations", name_width);
        let grid = grid.right("Number", 8).right("Bytes", 8).right("Freed", 8).right("Largest", 8);
        let number = |value: u64| units::count(value);
        let row = |name: &str, [count, bytes, freed, largest]: [String; 4]| {
            Line::raw(grid.line(["", name, &count, &bytes, &freed, &largest]))
        };
        let own = [allocs.allocs, allocs.bytes, allocs.freed].map(number);
        let nested = [allocs.allocs_inclusive, allocs.bytes_inclusive, allocs.freed_inclusive];
        let per_call = [|it: &Allocs| it.allocs, |it: &Allocs| it.bytes, |it: &Allocs| it.freed];
        let per_call =
            per_call.map(|of| self.figures.allocs_per_call(of).map_or(NONE.into(), units::si));
        let with = |three: [String; 3], largest: String| {
            let [count, bytes, freed] = three;
            [count, bytes, freed, largest]
        };
        let live = self.figures.live_error().map(|error| {
            let age = self.figures.live_age().map_or(String::new(), |age| self.scale.single(age));
            let name = format!("not freed yet, ±{}%, age {age}", units::percent(error));
            let none = String::new;
            row(&name, [none(), number(self.figures.heap().live_bytes), none(), none()])
        });
        let lines = [
            grid.heading(None, width, self.styles),
            row("per call", with(per_call, String::new())),
            row("in all", with(own, number(allocs.largest))),
            row("with nested", with(nested.map(number), String::new())),
        ];
        lines.into_iter().chain(live).chain(self.sizes(width)).collect()
    }

    /// The allocated bytes by the size of the allocations; nothing without samples.
    fn sizes(&self, width: usize) -> Vec<Line<'static>> {
        let sizes = histogram::sizes(self.figures.heap());
        let all: f64 = sizes.iter().map(|size| size.bytes).sum();
        let most = sizes.iter().map(|size| size.bytes).fold(0.0, f64::max);
        if all == 0.0 {
            return Vec::new();
        }
        let (glyphs, theme) = (&self.styles.glyphs, &self.styles.theme);
        let room = width.saturating_sub(40).clamp(4, FIGURES);
        let mut lines = vec![self.title("Sizes of allocations, sampled: share of the bytes")];
        lines.extend(sizes.iter().map(|size| {
            let range = match size.end {
                Some(end) => {
                    format!("{:>7}{}{:<7}", units::count(size.low), glyphs.to, units::count(end))
                }
                None => format!("{:>7} and more", units::count(size.low)),
            };
            let bar = text::fit(&chart::bar(size.bytes / most, room, glyphs), room, ' ');
            line![
                format!(" {range:<16} {:>5}% ", units::percent(size.bytes / all)),
                Span::styled(bar, theme.bar),
            ]
        }));
        lines
    }

    /// The amounts of the point's regions, and its figures grouped by amounts.
    fn amounts(&self, width: usize) -> Vec<TextLine> {
        let rate = |rate: Option<f64>| rate.map_or(NONE.into(), units::si);
        let amounts: Vec<_> = self.figures.amounts().collect();
        let Some(first) = amounts.first() else { return Vec::new() };
        let name_width = width.saturating_sub(2 + 3 * 9).clamp(8, 40);
        let grid = Grid::new(self.styles.glyphs.ellipsis).left("", 0).left("Amounts", name_width);
        let grid = grid.right("Sum", 8).right("/CPU s", 8).right("/s", 8);
        let mut lines = vec![grid.heading(None, width, self.styles)];
        lines.extend(amounts.iter().map(|amount| {
            let sum = units::si(amount.sum as f64);
            let [cpu, wall] = [rate(amount.per_cpu_second), rate(amount.per_second)];
            Line::raw(grid.line(["", amount.name, &sum, &cpu, &wall]))
        }));
        if let Some(intensity) = self.figures.intensity() {
            lines.push(Line::raw(grid.line(["", "flops per byte", &units::si(intensity), "", ""])));
        }
        let rows = self.figures.tuples().into_iter().map(|tuple| {
            let each = amounts.iter().zip(&tuple.each);
            let each: Vec<String> =
                each.map(|(amount, each)| format!("{}={each}", amount.name)).collect();
            let name = if each.is_empty() { "other".into() } else { each.join(" ") };
            Sums { name, rate: tuple.rates[0], total: tuple.total, ..Sums::default() }
        });
        // The table has the rate of only the first amount, which usually limits the speed.
        let of = format!("{}/s", first.name);
        let tuples = self.table(1, &rows.collect::<Vec<_>>(), Some((sums::RATE, &of)), width);
        lines.into_iter().map(|line| (line, None)).chain(tuples).collect()
    }

    /// The callers and the callees of the point.
    fn calls(&self, width: usize) -> Vec<TextLine> {
        let calls = Calls::of(self.figures);
        let name = |who: CallEnd| match who {
            CallEnd::Point(id) => self.common.point_name(id),
            CallEnd::Top => "(top level)".into(),
            CallEnd::Others => "(other callers)".into(),
        };
        // Ended callees of an open region are in the table already. So the whole includes the time
        // of open regions; otherwise a share could exceed 100 %.
        let open = self.figures.open().and_then(|open| open.on_cpu).unwrap_or(0);
        let all = self.figures.total().inclusive.saturating_add(open);
        let row = |one: &Related| {
            let &Related { who, count, exclusive, inclusive, allocs, alloc_bytes } = one;
            let share = (all > 0).then(|| inclusive as f64 / all as f64);
            let total = Stats { count, exclusive, inclusive, ..Stats::default() };
            let allocs = [allocs, alloc_bytes];
            Sums { name: name(who), total, share, allocs, ..Sums::default() }
        };
        let table = |title, related: &[Related]| {
            let rows: Vec<Sums> = related.iter().map(row).collect();
            self.table(2, &rows, Some((sums::WHO, title)), width)
        };
        let mut lines = table("Callers", &calls.callers);
        lines.extend(table("Callees", &calls.callees));
        lines
    }

    fn lanes(&self, width: usize) -> Vec<TextLine> {
        let most = self.figures.lanes().map(|lane| lane.total.exclusive).max().unwrap_or(0);
        let snapshot = self.common.model.snapshot();
        let rows = self.figures.lanes().map(|lane| {
            let (name, state) = match (lane.lane, snapshot) {
                (Some(found), Some(snapshot)) => {
                    (own_name(snapshot, found).to_owned(), self.figures.state_of(found))
                }
                _ => (format!("lane {}", lane.id), NONE),
            };
            // A row names its process only if the point is a sum over several processes.
            let is_sum = self.figures.process().is_none();
            let process = lane.lane.filter(|_| is_sum).zip(snapshot);
            let process = process.and_then(|(lane, snapshot)| snapshot.member(lane.process));
            let process = process.map_or(String::new(), columns::process_in_column);
            // The share shows how evenly the threads divide the work.
            let share = Some(lane.total.exclusive as f64 / most.max(1) as f64);
            let allocs = [lane.allocs.allocs, lane.allocs.bytes];
            Sums { name, process, state, total: lane.total, share, allocs, rate: None }
        });
        self.table(0, &rows.collect::<Vec<_>>(), None, width)
    }

    /// The time of the point's open regions so far.
    fn open(&self) -> Vec<Line<'static>> {
        let Some(open) = self.figures.open() else { return Vec::new() };
        let ticks = |ticks: Option<u64>| self.ticks(ticks.map(|ticks| ticks as f64));
        // A region that began after the snapshot has no time yet.
        let since = match open.span {
            0 => "just begun".into(),
            span => format!("for {}", ticks(Some(span))),
        };
        let mut rows = vec![("open", format!("{} {since}", open.count))];
        match open.on_cpu {
            Some(_) => {
                rows.push(("  on CPU", format!("{} so far", ticks(open.on_cpu))));
                rows.push(("  of its own", format!("{} so far", ticks(open.exclusive))));
            }
            None => rows.push(("  on CPU", "not known".into())),
        }
        rows.into_iter().map(|(name, value)| self.row(name, value, "")).collect()
    }
}

/// The percentiles within the range of a bar.
fn marks(bar: &HistogramBar, quantiles: Option<[u64; 4]>) -> String {
    // Leave out the last quantile: it seldom has a bar of its own, or room beside others.
    let marked = QUANTILES.iter().zip(quantiles.into_iter().flatten()).take(3);
    marked
        .filter(|(_, value)| (bar.low..bar.high).contains(&(*value as f64)))
        .map(|((name, _), _)| format!(" {name}"))
        .collect()
}

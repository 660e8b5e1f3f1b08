//! Tables of sums on a screen: a point by thread, by amounts and by caller, and a thread by point.
//! Each table has its own order; a click on a heading changes it.

use ratatui::text::Line;

use crate::screens::prelude::*;
use pfp_read::snapshot::Stats;

/// Maximum width of a bar.
const BAR_MAX: usize = 30;

/// A row of a table of sums.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) name: String,
    /// The process of the row; empty if all rows are of the same process.
    pub(super) process: String,
    pub(super) state: &'static str,
    pub(super) total: Stats,
    /// The row's share of the whole, or of the greatest row.
    pub(super) share: Option<f64>,
    /// The first amount, per second of the row's time.
    pub(super) rate: Option<f64>,
    /// Allocations and allocated bytes, without nested regions that count theirs.
    pub(super) allocs: [u64; 2],
}

pub(super) type SumsTable = Table<Sums, Scale>;

/// The figures of a point, by thread.
pub(super) static THREADS: SumsTable = table! {
    Sums, Scale;
    PROCESS, "Process", 20, Text(|it, _| it.process.clone()).rank(0),
        "its process, if there are several";
    "thread", "Thread", 8, Text(|it, _| it.name.clone()).left(24).rank(0).stays(), "its name";
    "thread-state", "State", 8, Text(|it, _| it.state.into()).rank(6),
        "live, ended, crashed or shared";
    "thread-count", "Count", 6, Count(count).rank(2), "measurements";
    "thread-excl", "Excl", 7, Sum(exclusive).rank(1), "own time, without nested regions";
    "thread-avg", "CPU avg", 7, Time(average).rank(3), "mean of a measurement";
    "thread-max", "CPU max", 7, Time(max).rank(4), "longest measurement";
    "thread-off", "Off%", 5, Share(off).rank(5), "share of wall time off the CPU";
    THREAD_ALLOCS, "Allocs", 7, Count(allocs).rank(8), "allocations";
    THREAD_BYTES, "Alloc B", 7, Count(alloc_bytes).rank(9), "allocated bytes";
    "thread-bar", "", 4, Picture(|it, _| it.share).left(BAR_MAX).rank(7),
        "exclusive time, relative to the busiest thread";
};

/// The figures of a thread, by point.
pub(super) static POINTS: SumsTable = table! {
    Sums, Scale;
    "point", "Point", 12, Text(|it, _| it.name.clone()).left(48).rank(0).stays(), "its name";
    "point-share", "Excl%", 6, Share(|it, _| it.share).rank(1), "share of the thread's time in points";
    "point-count", "Count", 7, Count(count).rank(2), "measurements";
    "point-avg", "CPU avg", 8, Time(average).rank(3), "mean of a measurement";
    "point-max", "CPU max", 8, Time(max).rank(4), "longest measurement";
    "point-excl", "Excl", 8, Sum(exclusive).rank(5), "own time, without nested regions";
    "point-off", "Off%", 6, Share(off).rank(6), "share of wall time off the CPU";
    POINT_ALLOCS, "Allocs", 7, Count(allocs).rank(7), "allocations";
    POINT_BYTES, "Alloc B", 7, Count(alloc_bytes).rank(8), "allocated bytes";
};

/// The figures of a point, by the amounts of its measurements.
pub(super) static TUPLES: SumsTable = table! {
    Sums, Scale;
    "by", "By amounts", 8, Text(|it, _| it.name.clone()).left(40).rank(0).stays(), "the amounts";
    "by-count", "Count", 6, Count(count).rank(1), "measurements";
    "by-avg", "CPU avg", 7, Time(average).rank(2), "mean of a measurement";
    "by-min", "CPU min", 7, Time(min).rank(4), "shortest measurement";
    "by-max", "CPU max", 7, Time(max).rank(3), "longest measurement";
    "by-dev", "Dev", 7, Time(|it, _| it.total.deviation()).rank(6), "standard deviation";
    RATE, "/s", 7, Rate(|it, _| it.rate).rank(5), "first amount, per second of its time";
};

/// The figures of a point's callers, or of its callees.
pub(super) static CALLS: SumsTable = table! {
    Sums, Scale;
    WHO, "Callers", 8, Text(|it, _| it.name.clone()).left(40).rank(0).stays(),
        "the caller or callee";
    "call-count", "Calls", 8, Count(count).rank(2), "calls";
    "call-excl", "Excl", 8, Sum(exclusive).rank(3), "own time of the callee";
    "call-incl", "Incl", 8, Sum(|it, _| Some(it.total.inclusive as f64)).rank(1),
        "time of the callee, with nested regions";
    "call-share", "Share%", 8, Share(|it, _| it.share).rank(4), "share of the point's time";
    CALL_ALLOCS, "Allocs", 7, Count(allocs).rank(5), "allocations of the callee";
    CALL_BYTES, "Alloc B", 7, Count(alloc_bytes).rank(6), "allocated bytes of the callee";
};

/// Keys of columns whose titles are replaced.
pub(super) const RATE: &str = "by-rate";
pub(super) const WHO: &str = "call";
/// Key of the column that is shown for several processes only.
const PROCESS: &str = "thread-process";
/// Keys of columns that are shown if a row has allocations.
const THREAD_ALLOCS: &str = "thread-allocs";
const THREAD_BYTES: &str = "thread-alloc-bytes";
const POINT_ALLOCS: &str = "point-allocs";
const POINT_BYTES: &str = "point-alloc-bytes";
const CALL_ALLOCS: &str = "call-allocs";
const CALL_BYTES: &str = "call-alloc-bytes";

fn count(row: &Sums, _: &Scale) -> Option<f64> {
    Some(row.total.count as f64)
}

fn exclusive(row: &Sums, _: &Scale) -> Option<f64> {
    Some(row.total.exclusive as f64)
}

fn allocs(row: &Sums, _: &Scale) -> Option<f64> {
    Some(row.allocs[0] as f64)
}

fn alloc_bytes(row: &Sums, _: &Scale) -> Option<f64> {
    Some(row.allocs[1] as f64)
}

fn average(row: &Sums, _: &Scale) -> Option<f64> {
    row.total.mean()
}

fn min(row: &Sums, _: &Scale) -> Option<f64> {
    (row.total.count > 0).then_some(row.total.min as f64)
}

fn max(row: &Sums, _: &Scale) -> Option<f64> {
    (row.total.count > 0).then_some(row.total.max as f64)
}

fn off(row: &Sums, _: &Scale) -> Option<f64> {
    row.total.off_share()
}

/// A line of a text. If it is the heading of a table, it comes with the table's columns.
pub(super) type TextLine = (Line<'static>, Option<Grid>);

/// The heading of a table and its sorted rows, indented by blanks; empty without rows. `renamed`
/// replaces the title of a column.
pub(super) fn lines(
    table: &'static SumsTable,
    chosen: &TableLayout,
    rows: &[Sums],
    renamed: Option<(&str, &str)>,
    (blanks, width): (usize, usize),
    scale: &Scale,
    styles: &Styles,
) -> Vec<TextLine> {
    if rows.is_empty() {
        return Vec::new();
    }
    let ellipsis = styles.glyphs.ellipsis;
    let is_offered = |key: &str| match key {
        PROCESS => rows.iter().any(|row| !row.process.is_empty()),
        THREAD_ALLOCS | THREAD_BYTES | POINT_ALLOCS | POINT_BYTES | CALL_ALLOCS | CALL_BYTES => {
            rows.iter().any(|row| row.allocs != [0; 2])
        }
        _ => true,
    };
    let mut fit = table.fit_offered(chosen, is_offered, blanks, width, ellipsis);
    for slot in &mut fit.grid.slots {
        if let Some((_, title)) = renamed.filter(|(key, _)| *key == slot.key) {
            slot.title = text::fit(title, slot.width, ellipsis).trim_end().to_owned().into();
        }
    }
    let mut sorted: Vec<&Sums> = rows.iter().collect();
    table.sort(chosen, &mut sorted, scale);
    let line = |row| (Line::raw(fit.line(String::new(), row, scale, styles)), None);
    let rows: Vec<TextLine> = sorted.into_iter().map(line).collect();
    let head = (fit.heading(chosen, styles), Some(fit.grid));
    std::iter::once(head).chain(rows).collect()
}

/// The column key at a screen position, if a heading is there. The text is scrolled by `offset`
/// lines, and starts one line below the top of `area`.
pub(super) fn heading_at(
    lines: &[TextLine],
    offset: usize,
    at: Position,
    area: Rect,
) -> Option<&'static str> {
    let line = at.y.checked_sub(area.y + 1)?;
    let (_, grid) = lines.get(offset + usize::from(line))?;
    grid.as_ref()?.key_at((at.x - area.x).into())
}

/// The initial choices for a table: rows keep the order in which they are given.
pub(super) fn unsorted(table: &'static SumsTable) -> TableLayout {
    table.usual("")
}

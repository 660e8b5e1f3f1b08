//! The slow calls that the program has kept: a line for each, and below them why the selected one
//! was slow.

use std::sync::Arc;

use crate::screens::prelude::*;
use pfp_model::slow;
use pfp_read::local_time::time_of_day;
use pfp_read::snapshot::{KernelCounts, SlowCall, total};

/// Columns of the mark of the cursor.
const MARK: usize = 1;
/// Maximum number of lines about the selected call.
const ABOUT: u16 = 12;

const NONE_KEPT: &str = " no slow call was kept so far; x sets the limit of a point";
const NO_LIMIT: &str = " no point has a limit; x on a point sets one, such as 5ms";

pub(super) static TABLE: Table<Arc<SlowCall>, Common> = table! {
    Arc<SlowCall>, Common;
    "when", "When", 8, Text(|call, _| time_of_day(call.unix_ms.saturating_mul(1_000_000))).stays()
        .order(|a, b| a.unix_ms.cmp(&b.unix_ms)), "when it was kept";
    "point", "Point", 16, Text(|call, common| name(call.point, common)).left(32).stays(),
        "its point";
    "time", "Time", 8, Sum(|call, _| Some(call.span as f64)).stays(),
        "time by the clock, from begin to end";
    "cpu", "CPU", 8, Sum(|call, _| Some(call.inclusive as f64)).rank(2),
        "time on a CPU, nested regions included";
    "times", "x avg", 7, Rate(times).rank(3), "its time divided by the point's mean time";
    "why", "Why", 24, Text(why).left(72).cut().unsorted().rank(1),
        "the nested calls that took most of its time, and what the thread did then";
    "thread", "Thread", 12, Text(thread).left(24).rank(4), "its thread";
};

fn name(point: u32, common: &Common) -> String {
    common.model.snapshot().map_or(String::new(), |snapshot| slow::name(point, snapshot))
}

fn thread(call: &Arc<SlowCall>, common: &Common) -> String {
    common.model.snapshot().map_or(String::new(), |snapshot| slow::thread(call, snapshot))
}

fn why(call: &Arc<SlowCall>, common: &Common) -> String {
    match (call.why.as_str(), common.model.snapshot()) {
        ("", Some(snapshot)) => slow::words(call, snapshot),
        (why, _) => why.to_owned(),
    }
}

/// The call's time divided by the point's mean time.
fn times(call: &Arc<SlowCall>, common: &Common) -> Option<f64> {
    let mean = common.model.point(call.point)?.mean_time().filter(|mean| *mean > 0.0)?;
    Some(call.span as f64 / mean)
}

/// The slow calls.
#[derive(Debug)]
pub struct SlowView {
    /// The rows, sorted.
    rows: Vec<Arc<SlowCall>>,
    /// The lane and the number of the call under the cursor.
    selected: Option<(u32, u64)>,
    table: TableLayout,
}

impl Default for SlowView {
    fn default() -> Self {
        let mut table = TABLE.usual("when");
        table.sort_by("when", Some(true));
        Self { rows: Vec::new(), selected: None, table }
    }
}

impl SlowView {
    fn call(&self) -> Option<&Arc<SlowCall>> {
        self.rows.iter().find(|call| Some(call.key()) == self.selected)
    }

    /// The areas of the titles, the rows and the lines about the selected call.
    fn parts(&self, body: Rect) -> [Rect; 3] {
        let about = if self.rows.is_empty() { 0 } else { ABOUT.min(body.height / 2) };
        vertical![==1, *=1, ==about].areas(body)
    }
}

groups! {
    MOMENT = own {
        Open [Named(Enter)] "timeline", "the moment of the call on the timeline";
    }
}

impl View for SlowView {
    fn keys(&self) -> KeyMap {
        &[&[keys::RUN, MOMENT, keys::TO_TABLE, keys::COPY, keys::TABLE], keys::TAIL]
    }

    fn act(&mut self, action: Action, _: &mut Common) -> Outcome {
        match (action, self.call()) {
            (Action::Open, Some(call)) => Outcome::ShowCall(Arc::clone(call)),
            _ => Outcome::Pass,
        }
    }

    fn forget(&mut self) {
        let table = self.table.clone();
        *self = Self { table, ..Self::default() };
    }

    fn begin(&mut self, common: &mut Common) {
        common.scroll = Scroll::default();
        self.update(common);
    }

    fn update(&mut self, common: &mut Common) -> Outcome {
        self.rows = common.model.snapshot().map_or(Vec::new(), |snapshot| snapshot.slow.clone());
        Outcome::Arrange
    }

    fn arrange(&mut self, common: &mut Common) {
        let mut sorted: Vec<&Arc<SlowCall>> = self.rows.iter().collect();
        TABLE.sort(&self.table, &mut sorted, common);
        self.rows = sorted.into_iter().cloned().collect();
        if self.call().is_none() {
            self.selected = self.rows.first().map(|call| call.key());
        }
    }

    fn cursor(&self, _: &Common) -> (usize, usize) {
        let place = self.rows.iter().position(|call| Some(call.key()) == self.selected);
        (place.unwrap_or(0), self.rows.len())
    }

    fn select(&mut self, place: usize, common: &mut Common) {
        self.selected = self.rows.get(place).map(|call| call.key());
        common.freeze();
    }

    fn target_point(&self, _: &Common) -> Option<u32> {
        self.call().map(|call| call.point)
    }

    has_table!(self.table);

    fn grid(&self, width: usize, _: &Common) -> Option<Grid> {
        Some(TABLE.fit(&self.table, MARK, width, ' ').grid)
    }

    fn copied(&self, common: &Common) -> Option<(String, String)> {
        let call = self.call()?;
        Some((name(call.point, common), TABLE.row(&self.table, call, common)))
    }

    fn rows(&self, body: Rect) -> Rect {
        self.parts(body)[1]
    }

    fn draw(&self, frame: &mut Frame, body: Rect, common: &Common) {
        let styles = &common.styles;
        let [head, list, about] = self.parts(body);
        let ellipsis = styles.glyphs.ellipsis;
        let fit = TABLE.fit(&self.table, MARK, body.width.into(), ellipsis);
        frame.render_widget(fit.heading(&self.table, styles), head);
        if self.rows.is_empty() {
            let points = common.model.points();
            let has_limit = points.iter().any(|figures| figures.point().limit.is_some());
            let text = if has_limit { NONE_KEPT } else { NO_LIMIT };
            return view::draw_empty(frame, list, text, common);
        }
        let seen = self.rows.iter().skip(common.scroll.offset);
        for (area, call) in list.rows().zip(seen) {
            let is_selected = self.selected == Some(call.key());
            if is_selected {
                frame.buffer_mut().set_style(area, styles.theme.selected);
            }
            let cursor = if is_selected { styles.glyphs.cursor } else { ' ' };
            frame.render_widget(fit.line(cursor.to_string(), call, common, styles), area);
        }
        if let (Some(call), Some(snapshot)) = (self.call(), common.model.snapshot()) {
            let lines = about_call(call, snapshot, common, about.width.into());
            for (area, line) in about.rows().zip(lines) {
                frame.render_widget(line, area);
            }
        }
    }
}

/// The lines about a call.
fn about_call(
    call: &SlowCall,
    snapshot: &Snapshot,
    common: &Common,
    width: usize,
) -> Vec<Line<'static>> {
    let (styles, scale) = (&common.styles, common.scale());
    let ticks = |ticks: u64| scale.single(ticks as f64);
    let cut = |line: String| Line::raw(text::cut(&line, width, styles.glyphs.ellipsis));
    let mut lines = vec![Line::raw("")];
    let around = call.enclosing.iter().map(|region| slow::name(region.point, snapshot));
    let path: Vec<_> = around.chain([slow::name(call.point, snapshot)]).collect();
    let over = call.limit.map_or(String::new(), |limit| format!(", limit {limit}"));
    let title = format!(" {}{over}", path.join(" > "));
    let title = text::cut(&title, width, styles.glyphs.ellipsis);
    lines.push(Line::styled(title, styles.theme.process));
    lines.push(cut(format!(
        " {} by the clock: {} on a CPU, {} off it",
        ticks(call.span),
        ticks(call.inclusive),
        ticks(call.off_cpu),
    )));
    if let Some(reason) = &call.waited_for {
        lines.push(cut(format!(" waited for: {reason}")));
    }
    if let Some(counts) = call.kernel {
        let KernelCounts { waits, preemptions, minor_faults, major_faults, before } = counts;
        let before = ticks(before);
        lines.push(cut(format!(
            " waits {waits}, pre-emptions {preemptions}, page faults {minor_faults} minor, \
             {major_faults} major; counted from {before} before the call"
        )));
    }
    let grid = Grid::new(styles.glyphs.ellipsis).left("", 0).left("Directly inside", 32);
    let grid = grid.right("Calls", 7).right("Usual", 7).right("Time", 8);
    let grid = grid.right("Own CPU", 8).right("Usual CPU", 9);
    lines.push(grid.heading(None, width, styles));
    let nested = slow::inside(call);
    let inside = nested.iter().fold(0_u64, |all, sum| all.saturating_add(sum.span));
    lines.extend(nested.iter().take(ABOUT.into()).map(|sum| {
        let name = slow::name(sum.point, snapshot);
        let [span, exclusive] = [sum.span, sum.exclusive].map(ticks);
        let usual = slow::usual(call.point, sum.point, snapshot);
        let [calls, usual] = usual.map_or([String::new(), String::new()], |(calls, ticks)| {
            [format!("{calls:.1}"), scale.single(ticks)]
        });
        cut(grid.line(["", &name, &units::count(sum.count), &calls, &span, &exclusive, &usual]))
    }));
    let itself = call.span.saturating_sub(inside);
    let sums = total(snapshot.cells_of(call.point));
    let [one, usual] = match sums.count {
        0 => [String::new(), String::new()],
        count => ["1.0".to_owned(), scale.single(sums.exclusive as f64 / count as f64)],
    };
    let row = ["", "itself", "1", &one, &ticks(itself), &ticks(call.exclusive), &usual];
    lines.push(cut(grid.line(row)));
    lines
}

//! What the threads wait for: a line for each reason, below the deadlocks and a sentence on what
//! most threads wait for.

use std::collections::HashMap;

use crate::screens::prelude::*;
use pfp_read::text::{clean, counted};
use pfp_read::waits::{Link, ReasonRow, WaitsReport, verdict};

/// Columns of the mark of the cursor.
const MARK: usize = 1;
/// Maximum number of lines of deadlocks.
const CYCLES: usize = 8;

const NOTHING: &str = " no thread has waited for anything in the last seconds";
const LOOKING: &str = " sampling what the threads wait for";
const UNKNOWN: &str = " waits were not sampled; only files of `w` and `pfp-top record` have them";

pub(super) static TABLE: Table<ReasonRow, Common> = table! {
    ReasonRow, Common;
    "name", "Waits for", 24, Text(|row, _| row.name.clone()).left(40).stays(),
        "the lock, file, peer or other reason; run queue: for a CPU";
    "time", "Time", 8, Sum(|row, _| Some(row.total_s)).text(|row, _| units::duration(row.total_s)).rank(2),
        "time waited in the last seconds, summed over the threads";
    "share", "Share%", 7, Share(|row, _| Some(row.share)).stays(),
        "share of the time of all threads";
    "longest", "Longest", 8, Sum(|row, _| row.longest_s).text(longest).rank(3),
        "the longest wait, known to within one sample";
    "waits", "Waits", 6, Count(|row, _| row.waits.map(|waits| waits as f64)).rank(5),
        "waits that were seen; shorter ones may have been missed";
    "owner", "Held by", 16, Text(|row, _| row.owner.clone()).left(32).rank(1).unsorted(),
        "the thread that held it most often, and its point; empty if unknown";
    "points", "Waiting", 16, Text(waiting).left(48).cut().rank(4).unsorted(),
        "the points that wait, with the number of their threads";
};

fn longest(row: &ReasonRow, _: &Common) -> String {
    row.longest_s.map_or(NONE.into(), units::duration)
}

/// The points that wait, in words: `handle_request (6 threads)`.
fn waiting(row: &ReasonRow, _: &Common) -> String {
    let words = row.points.iter().map(|(point, threads)| match threads {
        1 => point.clone(),
        threads => format!("{point} ({})", counted(*threads, "thread")),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The reasons of waits.
#[derive(Debug)]
pub struct WaitsView {
    /// The rows, sorted.
    rows: Vec<ReasonRow>,
    /// The lines above the rows: on deadlocks, and on why less is known than usual. Each with
    /// whether it is a heading.
    remarks: Vec<(String, bool)>,
    /// Names of the rows in their order, which stays while the cursor moves.
    order: Vec<String>,
    /// Name of the row under the cursor.
    selected: Option<String>,
    table: TableLayout,
}

impl Default for WaitsView {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            remarks: Vec::new(),
            order: Vec::new(),
            selected: None,
            table: TABLE.usual("share"),
        }
    }
}

/// See [`WaitsView::remarks`].
fn remarks(common: &Common) -> Vec<(String, bool)> {
    let Some(report) = common.waits() else { return Vec::new() };
    let link = |link: &Link| {
        let owner = link.owner.as_deref().unwrap_or("an unknown thread");
        let (thread, point, lock) = (&link.thread, &link.point, &link.lock);
        clean(&format!("   {thread} in {point} waits for {lock}, held by {owner}")).into_owned()
    };
    let mut lines = Vec::new();
    for cycle in &report.deadlocks {
        lines.push((" DEADLOCK: none of these threads can continue".into(), true));
        lines.extend(cycle.iter().map(|it| (link(it), false)));
    }
    if !report.stuck.is_empty() {
        lines.push((" these threads have waited for one lock all the time".into(), true));
        lines.extend(report.stuck.iter().map(|it| (link(it), false)));
    }
    if lines.len() > CYCLES {
        lines.truncate(CYCLES - 1);
        lines.push(("   and more: pfp-top waits lists all".into(), false));
    }
    lines.extend(report.limit.iter().map(|limit| (format!(" {limit}"), false)));
    lines
}

impl WaitsView {
    /// The areas of the sentence, the remarks, the titles and the rows.
    fn parts(&self, body: Rect) -> [Rect; 4] {
        let remarks = u16::try_from(self.remarks.len()).unwrap_or(u16::MAX).min(body.height / 2);
        vertical![==1, ==remarks, ==1, *=0].areas(body)
    }
}

impl View for WaitsView {
    fn wait_needs(&self) -> WaitNeeds {
        WaitNeeds::Reasons
    }

    fn keys(&self) -> KeyMap {
        &[&[keys::RUN, keys::TO_TABLE, keys::COPY, keys::TABLE], keys::TAIL]
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
        self.rows = common.waits().map_or(Vec::new(), |report| report.reasons());
        self.remarks = remarks(common);
        Outcome::Arrange
    }

    fn arrange(&mut self, common: &mut Common) {
        let mut sorted: Vec<&ReasonRow> = self.rows.iter().collect();
        TABLE.sort(&self.table, &mut sorted, common);
        if common.frozen_until.is_some() {
            let places: HashMap<&String, usize> = self.order.iter().zip(0..).collect();
            sorted.sort_by_key(|row| places.get(&row.name).copied().unwrap_or(usize::MAX));
        }
        self.rows = sorted.into_iter().cloned().collect();
        self.order = self.rows.iter().map(|row| row.name.clone()).collect();
        let is_there = |name: &String| self.rows.iter().any(|row| row.name == *name);
        if !self.selected.as_ref().is_some_and(is_there) {
            self.selected = self.rows.first().map(|row| row.name.clone());
        }
    }

    fn cursor(&self, _: &Common) -> (usize, usize) {
        let place = self.rows.iter().position(|row| Some(&row.name) == self.selected.as_ref());
        (place.unwrap_or(0), self.rows.len())
    }

    fn select(&mut self, place: usize, common: &mut Common) {
        self.selected = self.rows.get(place).map(|row| row.name.clone());
        common.freeze();
    }

    has_table!(self.table);

    fn grid(&self, width: usize, _: &Common) -> Option<Grid> {
        Some(TABLE.fit(&self.table, MARK, width, ' ').grid)
    }

    fn copied(&self, common: &Common) -> Option<(String, String)> {
        let row = self.rows.get(self.cursor(common).0)?;
        Some((row.name.clone(), TABLE.row(&self.table, row, common)))
    }

    fn rows(&self, body: Rect) -> Rect {
        self.parts(body)[3]
    }

    fn draw(&self, frame: &mut Frame, body: Rect, common: &Common) {
        let (styles, theme) = (&common.styles, &common.styles.theme);
        let [top, remarks, head, list] = self.parts(body);
        let report = common.waits().map(|report| report.as_ref());
        let ellipsis = styles.glyphs.ellipsis;
        let sentence = match report.filter(|report| report.samples > 0).map(verdict) {
            None => String::new(),
            Some(Some(verdict)) => format!(" {verdict}"),
            Some(None) => " the threads run more than they wait for any one thing".into(),
        };
        let sentence = text::cut(&clean(&sentence), body.width.into(), ellipsis);
        frame.render_widget(Line::styled(sentence, theme.process), top);
        for (area, (line, is_heading)) in remarks.rows().zip(&self.remarks) {
            let line = text::cut(line, body.width.into(), ellipsis);
            let style = if *is_heading { theme.error } else { theme.warn };
            frame.render_widget(Line::styled(line, style), area);
        }
        let fit = TABLE.fit(&self.table, MARK, body.width.into(), ellipsis);
        frame.render_widget(fit.heading(&self.table, styles), head);
        if self.rows.is_empty() {
            let text = match report {
                None => UNKNOWN,
                // The lines above say why.
                Some(WaitsReport { samples: 0, limit: Some(_), .. }) => "",
                Some(WaitsReport { samples: 0, limit: None, .. }) => LOOKING,
                Some(_) => NOTHING,
            };
            return view::draw_empty(frame, list, text, common);
        }
        let seen = self.rows.iter().skip(common.scroll.offset);
        for (area, row) in list.rows().zip(seen) {
            let is_selected = self.selected.as_ref() == Some(&row.name);
            if is_selected {
                frame.buffer_mut().set_style(area, theme.selected);
            }
            let cursor = if is_selected { styles.glyphs.cursor } else { ' ' };
            frame.render_widget(fit.line(cursor.to_string(), row, common, styles), area);
        }
    }
}

//! The processes to choose from.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};

use super::{Outcome, Screen, View};
use crate::app::keys::Key::Char;
use crate::app::keys::{self, Group, KeyMap, bind, own};
use crate::app::{Action, Common};
use crate::grid::{Grid, Scroll};
use crate::look::{Look, draw_scrolled};
use crate::snapshot::ProcessState;
use crate::source::{Candidate, Choice, Discovery, Members, Together, Wanted, choose};
use crate::text;

const MARK: Group = own(&[
    bind(Action::Mark, &[Char(' ')], "mark", "mark; Enter opens all marked ones as one"),
    bind(Action::OpenSummed, &[Char('S')], "summed", "the marked ones, points of one name summed"),
]);

/// The processes to choose from.
#[derive(Default)]
pub struct Picker {
    /// The processes, in the order of the rows.
    pub candidates: Vec<Candidate>,
    /// Segment id of the process under the cursor.
    pub picked: Option<String>,
    /// Segment ids of the processes that are marked.
    pub marked: HashSet<String>,
}

impl Picker {
    /// Marks the process under the cursor, or takes its mark away.
    fn mark(&mut self, common: &Common) {
        let (place, len) = self.cursor(common);
        let Some(candidate) = self.candidates.get(place) else { return };
        if !self.marked.remove(&candidate.segment_id) {
            self.marked.insert(candidate.segment_id.clone());
        }
        // On to the next, so that a row of them is a row of blanks.
        let next = self.candidates.get((place + 1).min(len - 1));
        self.picked = next.map(|candidate| candidate.segment_id.clone());
    }

    /// Opens the marked processes that are still there, in their order.
    fn open_marked(&mut self, sum: bool, common: &mut Common, now: Instant) -> Outcome {
        let ids = self.candidates.iter().map(|candidate| &candidate.segment_id);
        let ids: Vec<String> = ids.filter(|id| self.marked.contains(*id)).cloned().collect();
        if ids.is_empty() {
            common.say(now, "Space marks the processes to open");
            return Outcome::Done;
        }
        Outcome::AttachTogether(Together { members: Members::Segments(ids), sum })
    }
}

impl View for Picker {
    fn keys(&self) -> KeyMap {
        &[&[keys::OPEN, keys::BACK, MARK, keys::WALK, keys::PAGE, keys::LEAVE, keys::TERMINAL]]
    }

    fn begin(&mut self, common: &mut Common, _: Instant) {
        self.marked.clear();
        common.scroll = Scroll::default();
        self.candidates = all_candidates(&common.discovery, common.wanted());
    }

    fn forget(&mut self) {
        self.marked.clear();
    }

    fn looks_for_processes(&self) -> bool {
        true
    }

    fn discovered(&mut self, common: &mut Common) -> Outcome {
        let is_offered = common.session.is_none();
        match choose(&common.discovery, common.wanted()) {
            Choice::None => self.candidates.clear(),
            // They were offered for want of one that runs; now there is one.
            Choice::One(only) if is_offered && !self.candidates.iter().any(Candidate::runs) => {
                return Outcome::Attach(only);
            }
            // The user asked to see what there is, so nothing is left out.
            _ => self.candidates = all_candidates(&common.discovery, common.wanted()),
        }
        match self.candidates.is_empty() && is_offered {
            true => Outcome::Show(Screen::Waiting),
            false => Outcome::Done,
        }
    }

    fn act(&mut self, action: Action, common: &mut Common, now: Instant) -> Outcome {
        match action {
            Action::Mark => self.mark(common),
            Action::OpenSummed => return self.open_marked(true, common, now),
            Action::Open if !self.marked.is_empty() => {
                return self.open_marked(false, common, now);
            }
            Action::Open => {
                let (place, _) = self.cursor(common);
                if let Some(candidate) = self.candidates.get(place) {
                    return Outcome::Attach(candidate.clone());
                }
            }
            Action::Back if common.session.is_none() => {
                common.say(now, "Enter opens a process, q quits");
            }
            Action::Back => return Outcome::Back,
            _ => return Outcome::Pass,
        }
        Outcome::Done
    }

    fn cursor(&self, _: &Common) -> (usize, usize) {
        let picked = |c: &Candidate| Some(&c.segment_id) == self.picked.as_ref();
        let place = self.candidates.iter().position(picked);
        (place.unwrap_or(0), self.candidates.len())
    }

    fn select(&mut self, place: usize, _: &mut Common, _: Instant) {
        self.picked = self.candidates.get(place).map(|c| c.segment_id.clone());
    }

    fn rows(&self, body: Rect) -> Rect {
        Rect { y: body.y + 1, height: body.height.saturating_sub(1), ..body }
    }

    fn draw(&self, frame: &mut Frame, area: Rect, common: &Common, look: &Look) {
        let width = usize::from(area.width);
        let grid = Grid::new(look.glyphs.ellipsis).left("", 2).left("Number", 7).left("PID", 7);
        let grid = grid.left("State", 8).right("Points", 6);
        let grid = grid.clone().left(" Name", width.saturating_sub(grid.width()));
        if self.candidates.is_empty() {
            let text = format!(" {}", common.discovery.nothing_found());
            return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), area);
        }
        let (cursor, _) = self.cursor(common);
        let lines = self.candidates.iter().enumerate().map(|(place, candidate)| {
            let selected = place == cursor;
            let marked = self.marked.contains(&candidate.segment_id);
            let mark = if selected { look.glyphs.cursor } else { ' ' };
            let star = if marked { '*' } else { ' ' };
            let row = grid.line([
                String::from_iter([mark, star]),
                common.discovery.number_of(candidate).to_string(),
                candidate.visible_pid().to_string(),
                candidate.state.word().to_owned(),
                candidate.points.to_string(),
                format!(" {}", candidate.label()),
            ]);
            let row = text::fit(&row, width, look.glyphs.ellipsis);
            let style = match (selected, candidate.state) {
                (true, _) => look.theme.selected,
                (false, ProcessState::Running) => look.theme.header,
                (false, ProcessState::Exited | ProcessState::Crashed) => look.theme.faint,
            };
            Line::styled(row, style)
        });
        let not_shown = common.discovery.not_shown().map(|why| {
            let row = text::fit(&format!("  {why}"), width, look.glyphs.ellipsis);
            Line::styled(row, look.theme.faint)
        });
        let heading = grid.heading(None, width, look);
        let lines = lines.chain(not_shown).collect();
        draw_scrolled(frame, area, heading, lines, common.scroll.offset);
    }
}

/// Every process that fits, those that run first, then the youngest first.
fn all_candidates(discovery: &Discovery, wanted: &Wanted) -> Vec<Candidate> {
    let found = &discovery.candidates;
    let fits = |candidate: &&Candidate| wanted.is_any() || wanted.admits(candidate, found);
    let mut all: Vec<_> = found.iter().filter(fits).cloned().collect();
    all.sort_by_key(|c| (!c.runs(), Reverse(c.started_unix_ns)));
    all
}

//! The list of processes from which the user chooses.

use std::collections::HashSet;

use crate::screens::prelude::*;
use pfp_read::local_time::time_of_day;
use pfp_read::source::{Candidate, Choice, Discovery, ProcessGroup, Selector, choose};

groups! {
    MARK = own {
        Mark [Char(' ')] "mark", "mark; Enter opens all marked processes together";
        OpenSummed [Char('S')] "summed",
            "open the marked processes together, with points of the same name summed";
    }
}

/// Columns of the cursor and of the mark.
const MARKS: usize = 2;

static TABLE: Table<Candidate, Discovery> = table! {
    Candidate, Discovery;
    "number", "Number", 7, Text(|it, all| all.number_of(it).to_string()).rank(3).unsorted(),
        "the number that -p takes";
    "pid", "PID", 7, Whole(|it, _| Some(it.visible_pid().into())).left(7).stays().least(),
        "process id";
    "state", "State", 8, Text(|it, _| it.state_word().to_owned()).rank(1), "whether it runs";
    "points", "Points", 6, Whole(|it, _| Some(it.points.into())).rank(2),
        "points that it has reached";
    "name", " Name", 10, Text(|it, _| format!(" {}", it.label())).left(usize::MAX).stays(),
        "its name, and where it runs";
    "started", "Started", 8, Text(|it, _| time_of_day(it.started_unix_ns)).right().spare()
        .order(|a, b| (a.runs(), a.started_unix_ns).cmp(&(b.runs(), b.started_unix_ns))).greatest(),
        "when it started";
};

/// The list of processes from which the user chooses.
pub struct PickerView {
    /// The processes, in the order of the rows.
    pub candidates: Vec<Candidate>,
    /// Segment id of the process under the cursor.
    pub picked: Option<String>,
    /// Segment ids of the processes that are marked.
    pub marked: HashSet<String>,
    /// The columns, and the order of the rows: at first running processes, the youngest first.
    table: TableLayout,
    /// The filter: the processes that pass have a row.
    filter: Filter,
}

impl Default for PickerView {
    fn default() -> Self {
        Self {
            candidates: Vec::new(),
            picked: None,
            marked: HashSet::new(),
            table: TABLE.usual("started"),
            filter: Filter::default(),
        }
    }
}

impl PickerView {
    /// Lists every process that fits, in the order of the rows.
    fn fill(&mut self, common: &Common) {
        let (found, wanted) = (&common.discovery.candidates, common.wanted());
        let fits = |it: &&Candidate| wanted.is_any() || wanted.admits(it, found);
        let passes = |it: &&Candidate| {
            self.filter.admits_words(&[&it.label(), &it.visible_pid().to_string(), it.state_word()])
        };
        let mut all: Vec<&Candidate> = found.iter().filter(fits).filter(passes).collect();
        TABLE.sort(&self.table, &mut all, &common.discovery);
        self.candidates = all.into_iter().cloned().collect();
    }

    /// Marks the process under the cursor, or removes its mark.
    fn mark(&mut self, common: &Common) {
        let (place, len) = self.cursor(common);
        let Some(candidate) = self.candidates.get(place) else { return };
        if !self.marked.remove(&candidate.segment_id) {
            self.marked.insert(candidate.segment_id.clone());
        }
        // Move on to the next row, so that repeated presses of Space mark adjacent rows.
        let next = self.candidates.get((place + 1).min(len - 1));
        self.picked = next.map(|candidate| candidate.segment_id.clone());
    }

    /// Opens the marked processes that still exist, in the order of the rows.
    fn open_marked(&mut self, sum: bool, common: &mut Common) -> Outcome {
        let ids = self.candidates.iter().map(|candidate| &candidate.segment_id);
        let ids: Vec<String> = ids.filter(|id| self.marked.contains(*id)).cloned().collect();
        if ids.is_empty() {
            common.say("Space marks the processes to open");
            return Outcome::Done;
        }
        Outcome::AttachGroup(ProcessGroup { members: Selector::Segments(ids), sum })
    }
}

impl View for PickerView {
    fn keys(&self) -> KeyMap {
        &[&[
            keys::OPEN,
            keys::BACK,
            MARK,
            keys::COPY,
            keys::FILTER,
            keys::TABLE,
            keys::WALK,
            keys::PAGE,
            keys::LEAVE,
            keys::TERMINAL,
        ]]
    }

    fn begin(&mut self, common: &mut Common) {
        self.marked.clear();
        common.scroll = Scroll::default();
    }

    fn arrange(&mut self, common: &mut Common) {
        common.select_among(&[]);
        self.fill(common);
    }

    fn own_filter(&mut self) -> Option<(&mut Filter, &'static str)> {
        Some((&mut self.filter, "processes"))
    }

    fn leads_back(&self, common: &Common) -> bool {
        self.filter.is_on() || common.session.is_some()
    }

    has_table!(self.table);

    fn grid(&self, width: usize, _: &Common) -> Option<Grid> {
        Some(TABLE.fit(&self.table, MARKS, width, ' ').grid)
    }

    fn copied(&self, common: &Common) -> Option<(String, String)> {
        let candidate = self.candidates.get(self.cursor(common).0)?;
        Some((candidate.label(), TABLE.row(&self.table, candidate, &common.discovery)))
    }

    fn forget(&mut self) {
        self.marked.clear();
    }

    fn discovered(&mut self, common: &mut Common) -> Outcome {
        let is_offered = common.session.is_none() && !self.filter.is_on();
        match choose(&common.discovery, common.wanted()) {
            Choice::None => self.candidates.clear(),
            // The screen offered ended processes because none ran; now one runs.
            Choice::One(only) if is_offered && !self.candidates.iter().any(Candidate::runs) => {
                return Outcome::Attach(only);
            }
            // The user has asked for the list, so it shows all processes.
            _ => self.fill(common),
        }
        match self.candidates.is_empty() && is_offered {
            true => Outcome::Show(Screen::Waiting),
            false => Outcome::Done,
        }
    }

    fn act(&mut self, action: Action, common: &mut Common) -> Outcome {
        match action {
            Action::Mark => self.mark(common),
            Action::OpenSummed => return self.open_marked(true, common),
            Action::Open if !self.marked.is_empty() => return self.open_marked(false, common),
            Action::Open => {
                if let Some(candidate) = self.candidates.get(self.cursor(common).0) {
                    return Outcome::Attach(candidate.clone());
                }
            }
            Action::Back if self.filter.is_on() => return Outcome::Pass,
            Action::Back if !self.leads_back(common) => {
                common.say("Enter opens a process, q quits");
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

    fn select(&mut self, place: usize, _: &mut Common) {
        self.picked = self.candidates.get(place).map(|c| c.segment_id.clone());
    }

    fn rows(&self, body: Rect) -> Rect {
        Rect { y: body.y + 1, height: body.height.saturating_sub(1), ..body }
    }

    fn draw(&self, frame: &mut Frame, area: Rect, common: &Common) {
        let Styles { theme, glyphs } = &common.styles;
        if self.candidates.is_empty() {
            let nothing = format!(" {}", common.discovery.nothing_found());
            let text = view::why_none("process", &self.filter, &nothing);
            return view::draw_empty(frame, area, &text, common);
        }
        let fit = TABLE.fit(&self.table, MARKS, area.width.into(), glyphs.ellipsis);
        let (cursor, _) = self.cursor(common);
        let lines = self.candidates.iter().enumerate().map(|(place, candidate)| {
            let mark = if place == cursor { glyphs.cursor } else { ' ' };
            let star = if self.marked.contains(&candidate.segment_id) { '*' } else { ' ' };
            let style = match candidate.state {
                _ if place == cursor => theme.selected,
                ProcessState::Running => theme.header,
                _ => theme.faint,
            };
            let mark = String::from_iter([mark, star]);
            Line::styled(fit.line(mark, candidate, &common.discovery, &common.styles), style)
        });
        let not_shown = common.discovery.not_shown().map(|why| {
            let row = text::fit(&format!("  {why}"), fit.width, glyphs.ellipsis);
            Line::styled(row, theme.faint)
        });
        let heading = fit.heading(&self.table, &common.styles);
        let lines = lines.chain(not_shown).collect();
        draw_scrolled(frame, area, heading, lines, common.scroll.offset);
    }
}

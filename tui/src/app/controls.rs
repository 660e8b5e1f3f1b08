//! Changes that the user makes in the watched program, to one point or to all shown points.

use super::App;
use crate::common::{Errand, Overlay, Prompt, PromptSubject, Question};
use pfp_model::Figures;
use pfp_model::columns::{Available, Column};
use pfp_model::left_over::LeftOver;
use pfp_model::{alpha, slow};
use pfp_read::snapshot::{PointFlag, PointState};
use pfp_read::source::{Change, Refusal};

impl App {
    /// A confirmation question in words, such as `reset parse?`.
    pub fn asked(&self, question: &Question) -> String {
        let what = match question {
            Question::Switch { on: true, .. } => "switch on",
            Question::Switch { on: false, .. } => "switch off",
            Question::Reset { .. } => "reset",
        };
        let name = |id: &u32| self.common.model.point(*id).map(Figures::name);
        match question.ids() {
            [id] => format!("{what} {}?", name(id).unwrap_or_default()),
            ids => {
                let is_shown = |id| self.common.order.contains(id);
                let by_filter = self.common.filter.is_on() && ids.iter().all(is_shown);
                let which = if by_filter { " that pass the filter" } else { "" };
                format!("{what} {} points{which}?", ids.len())
            }
        }
    }

    /// If a killed viewer has left points switched, switches them back. Otherwise switches all
    /// shown points off. If all shown points are off already, switches on the points that this
    /// viewer has switched off or, without such points, all shown points.
    pub(super) fn toggle_all(&mut self) {
        let points = self.common.model.points().iter();
        let waiting = points.filter(|figures| figures.state() == figures.point().state);
        if let Some(LeftOver { ids, on }) = LeftOver::of(waiting.map(Figures::point)) {
            return self.ask(Question::Switch { ids, on: !on });
        }
        let on = !self.shown().any(|figures| figures.state() == PointState::On);
        let differs = |figures: &&Figures| (figures.state() == PointState::On) != on;
        let mut ids: Vec<u32> = self.shown().filter(differs).map(Figures::id).collect();
        let switched = |id: &u32| self.common.session.as_ref().is_some_and(|s| s.switched_off(*id));
        if on && ids.iter().any(switched) {
            ids.retain(switched);
        }
        self.ask(Question::Switch { ids, on });
    }

    /// Asks whether to reset the point that the keys act on.
    pub(super) fn reset(&mut self) {
        if let Some((id, _, _)) = self.point_meant() {
            self.overlay = Some(Overlay::Ask(Question::Reset { ids: vec![id] }));
        }
    }

    /// Asks whether to reset all shown points.
    pub(super) fn reset_all(&mut self) {
        let ids = self.shown().map(Figures::id).collect();
        self.ask(Question::Reset { ids });
    }

    fn shown(&self) -> impl Iterator<Item = &Figures> {
        self.common.order.iter().filter_map(|id| self.common.model.point(*id))
    }

    fn ask(&mut self, question: Question) {
        match question.ids() {
            [] => self.common.say("there is nothing to change"),
            // No question: pressing the key again undoes the switch.
            [_] if matches!(question, Question::Switch { .. }) => self.carry_out(question),
            _ => self.overlay = Some(Overlay::Ask(question)),
        }
    }

    /// Carries out the change that a question was about.
    pub(super) fn carry_out(&mut self, question: Question) {
        let which = match question.ids() {
            [id] => self.common.model.point(*id).map(|it| self.common.full_name(it)),
            ids => Some(format!("{} points", ids.len())),
        };
        let (what, change): (_, fn(u32) -> Change) = match &question {
            Question::Switch { on: true, .. } => ("switched on", Change::Enable),
            Question::Switch { .. } => ("switched off", Change::Disable),
            Question::Reset { .. } => ("reset", Change::Reset),
        };
        let what = format!("{what} {}", which.unwrap_or_default());
        let changes: Vec<Change> = question.ids().iter().map(|id| change(*id)).collect();
        let done = self.make(&what, &changes);
        if let (Question::Switch { on: false, ids, .. }, Ok(())) = (&question, &done)
            && let Some(session) = &mut self.common.session
        {
            let all = self.common.model.points().iter().map(Figures::point);
            session.keep_off(ids, all);
        }
        self.say_done(done, &what);
    }

    /// Switches the point that the keys act on.
    pub(super) fn toggle(&mut self) {
        let Some((id, found, name)) = self.point_meant() else { return };
        let (change, word) = match found {
            PointState::On => (Change::Disable(id), "off"),
            _ => (Change::Enable(id), "on"),
        };
        let done = self.make(&format!("switched {word} {name}"), &[change]);
        self.say_done(done, &format!("{name} is {word}"));
    }

    /// Sets or clears a flag of the point that the keys act on.
    pub(super) fn turn_flag(&mut self, flag: PointFlag) {
        let Some((id, _, name)) = self.point_meant() else { return };
        let is_on = self.common.model.point(id).is_some_and(|figures| figures.has(flag));
        let (what, said) = match (flag, is_on) {
            (PointFlag::Fenced, true) => ("removed the fences of", "is no longer fenced"),
            (PointFlag::Fenced, false) => ("fenced", "is fenced: times of short regions are exact"),
            (PointFlag::CountsAllocs, true) => {
                ("no longer counted allocations of", "no longer counts its allocations")
            }
            (PointFlag::CountsAllocs, false) => (
                "counted allocations of",
                "counts its allocations, if an allocator does: run --alloc or pfp::Alloc",
            ),
        };
        let done = self.make(&format!("{what} {name}"), &[Change::SetFlag(id, flag, !is_on)]);
        self.say_done(done, &format!("{name} {said}"));
    }

    /// Asks for alpha of the point's EWMA.
    pub(super) fn ask_alpha(&mut self) {
        let Some(figures) = self.target_point() else { return };
        let text = figures.point().alpha.map_or(String::new(), alpha::written);
        let prompt = Prompt::new(PromptSubject::Alpha(figures.id()), &text);
        self.overlay = Some(Overlay::Typed(prompt));
    }

    /// Sets alpha from the typed text, or shows the error in it.
    pub(super) fn set_alpha(&mut self, id: u32, prompt: Prompt) {
        let name = self.common.point_name(id);
        let alpha = match alpha::parse(&prompt.text()) {
            Ok(alpha) => alpha,
            Err(why) => return self.overlay = Some(prompt.refused(why)),
        };
        let said = match alpha.map(alpha::written) {
            Some(alpha) => format!("{name} has an EWMA with alpha {alpha}"),
            None => format!("{name} has no EWMA from now on"),
        };
        self.set(prompt, &format!("set alpha of {name}"), Change::SetAlpha(id, alpha), &said);
    }

    /// Asks for the time from which on the point's calls are kept.
    pub(super) fn ask_limit(&mut self) {
        let Some(figures) = self.target_point() else { return };
        let text = figures.point().limit.map_or(String::new(), slow::written);
        let prompt = Prompt::new(PromptSubject::Limit(figures.id()), &text);
        self.overlay = Some(Overlay::Typed(prompt));
    }

    /// Sets the limit from the typed text, or shows the error in it.
    pub(super) fn set_limit(&mut self, id: u32, prompt: Prompt) {
        let name = self.common.point_name(id);
        let limit = match slow::parse_limit(&prompt.text()) {
            Ok(limit) => limit,
            Err(why) => return self.overlay = Some(prompt.refused(why)),
        };
        let said = match limit {
            Some(limit) => format!("calls of {name} of at least {limit} are kept; 0 shows them"),
            None => format!("calls of {name} are not kept any more"),
        };
        self.set(prompt, &format!("set a limit of {name}"), Change::SetLimit(id, limit), &said);
    }

    /// Makes the change that was typed, or shows the error in the prompt.
    fn set(&mut self, prompt: Prompt, what: &str, change: Change, said: &str) {
        match self.make(what, &[change]) {
            Err(error) if !Refusal::is_partly(&error) => {
                self.overlay = Some(prompt.refused(format!("{error:#}")));
            }
            done => self.say_done(done, said),
        }
    }

    /// Copies the row to the terminal's clipboard, with the titles of its figures.
    pub(super) fn copy_row(&mut self) {
        let Some((name, row)) = self.view().copied(&self.common).or_else(|| self.row_of_point())
        else {
            return;
        };
        self.common.errand = Some(Errand::Copy(row));
        self.common.say(format!("copied: {name} (if the terminal allows OSC 52)"));
    }

    /// The name and the row of the point that the keys act on.
    fn row_of_point(&self) -> Option<(String, String)> {
        let figures = self.target_point()?;
        let scale = self.common.scale();
        let mut parts = vec![figures.name()];
        let point = figures.point();
        if !point.file.is_empty() {
            parts.push(point.place());
        }
        let available = Available::of(&self.common.model);
        let columns = Column::shown(&self.screens.points.columns(), available).into_iter();
        let figures_of = columns.filter(|c| *c != Column::Name && !c.is_drawn());
        parts.extend(figures_of.map(|c| format!("{} {}", c.title(), c.text(figures, &scale))));
        Some((figures.name(), parts.join("  ")))
    }
}

//! Changes that the user makes in the watched program, to one point or to all shown points.

use anyhow::Result;

use super::App;
use crate::common::{Errand, Overlay, Prompt, PromptSubject, Question, Severity};
use pfp_model::Figures;
use pfp_model::alpha;
use pfp_model::columns::{Column, There};
use pfp_model::left_over::LeftOver;
use pfp_read::snapshot::PointState;
use pfp_read::source::{Change, Refusal, change_each};
use pfp_read::text;

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
    /// shown points off. If all of them are off already, switches on those that this viewer has
    /// switched off, or all if there are none.
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
        let Some(session) = &mut self.common.session else { return };
        let name = |id: u32| self.common.model.point(id).map_or_else(String::new, Figures::name);
        let which = match question.ids() {
            [id] => name(*id),
            ids => format!("{} points", ids.len()),
        };
        let text = match &question {
            Question::Switch { on: true, .. } => format!("switched on {which}"),
            Question::Switch { .. } => format!("switched off {which}"),
            Question::Reset { .. } => format!("reset {which}"),
        };
        // Ids of the changed points, each with a message if some of its processes refused the
        // change.
        let mut changed = Vec::new();
        let done = change_each(question.ids(), |id| {
            let done = match &question {
                Question::Switch { on, .. } => {
                    let Some(found) = self.common.model.point(*id).map(Figures::state) else {
                        return Ok(());
                    };
                    let left = session.switch(*id, found, *on);
                    left.map(|toggled| self.common.model.expect_state(*id, toggled.left))
                }
                Question::Reset { .. } => session.act(Change::Reset(*id)).map(drop),
            };
            match &done {
                Ok(()) => changed.push((*id, None)),
                Err(error) if Refusal::is_partly(error) => {
                    changed.push((*id, Some(text::clean(&format!("{error:#}")).into_owned())));
                }
                Err(_) => {}
            }
            done
        });
        if let (Question::Switch { on: false, ids, .. }, Ok(())) = (&question, &done) {
            let all = self.common.model.points().iter().map(Figures::point);
            session.keep_off(ids, all);
        }
        let unix_ns = self.common.unix_ns();
        for (id, but) in &changed {
            let (name, but) = (self.common.point_name(*id), but.as_deref());
            let log = &mut self.common.log;
            match &question {
                Question::Switch { on, .. } => {
                    let state = if *on { PointState::On } else { PointState::Off };
                    log.toggled(unix_ns, *id, &name, state, but);
                }
                Question::Reset { .. } => log.reset(unix_ns, *id, &name, but),
            }
        }
        match done {
            Ok(()) => self.common.say(text),
            Err(error) if Refusal::is_partly(&error) => {
                self.common.notify(Severity::Failure, format!("{error:#}"))
            }
            Err(error) => self.common.notify(Severity::Error, format!("{error:#}")),
        }
    }

    /// Asks for alpha of the point's EWMA.
    pub(super) fn ask_alpha(&mut self) {
        let Some(figures) = self.meant() else { return };
        let text = figures.point().alpha.map_or(String::new(), alpha::written);
        let prompt = Prompt::new(PromptSubject::Alpha(figures.id()), &text);
        self.overlay = Some(Overlay::Typed(prompt));
    }

    /// Sets alpha from the typed text, or shows the error in it.
    pub(super) fn set_alpha(&mut self, id: u32, prompt: Prompt) {
        let (unix_ns, name) = (self.common.unix_ns(), self.common.point_name(id));
        let Some(session) = &mut self.common.session else { return };
        let set = alpha::parse(&prompt.text()).and_then(|alpha| {
            match but_partly(session.act(Change::SetAlpha(id, alpha))) {
                Ok(but) => Ok((alpha, but)),
                Err(error) => Err(format!("{error:#}")),
            }
        });
        match set {
            Ok((alpha, but)) => {
                self.common.log.averaged(unix_ns, id, &name, alpha, but.as_deref());
                if let Some(why) = but {
                    return self.common.notify(Severity::Failure, why);
                }
                let name = self.common.model.point(id).map_or(String::new(), Figures::name);
                let text = match alpha {
                    Some(alpha) => {
                        format!("{name} has an EWMA with alpha {}", alpha::written(alpha))
                    }
                    None => format!("{name} has no EWMA from now on"),
                };
                self.common.say(text);
            }
            Err(why) => self.overlay = Some(prompt.refused(why)),
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
        let figures = self.meant()?;
        let scale = self.common.scale();
        let mut parts = vec![figures.name()];
        let point = figures.point();
        if !point.file.is_empty() {
            parts.push(point.place());
        }
        let there = There::of(&self.common.model);
        let columns = Column::shown(&self.screens.points.columns(), there).into_iter();
        let figures_of = columns.filter(|c| *c != Column::Name && !c.is_drawn());
        parts.extend(figures_of.map(|c| format!("{} {}", c.title(), c.text(figures, &scale))));
        Some((figures.name(), parts.join("  ")))
    }
}

/// Takes a refusal by only some of the processes as success, and returns its message. `None` if no
/// process refused the change.
pub(super) fn but_partly<T>(done: Result<T>) -> Result<Option<String>> {
    match done {
        Ok(_) => Ok(None),
        Err(error) if Refusal::is_partly(&error) => {
            Ok(Some(text::clean(&format!("{error:#}")).into_owned()))
        }
        Err(error) => Err(error),
    }
}

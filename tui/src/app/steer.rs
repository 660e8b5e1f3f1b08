//! What the user changes in the watched program: one point, or all that are
//! shown.

use std::time::Instant;

use super::{App, Overlay, Prompt, weight};
use crate::columns::Column;
use crate::model::Figures;
use crate::snapshot::PointState;
use crate::units::Scale;

/// Something that changes more than one point, and waits for a yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Switch these points on, or off.
    Switch {
        /// Their ids.
        ids: Vec<u32>,
        /// On.
        on: bool,
    },
    /// Start the figures of these points afresh.
    Reset {
        /// Their ids.
        ids: Vec<u32>,
    },
}

impl Question {
    /// What is asked.
    pub fn text(&self, filtered: bool) -> String {
        let which = if filtered { " that pass the filter" } else { "" };
        match self {
            Self::Switch { ids, on } => {
                let word = if *on { "on" } else { "off" };
                format!("switch {word} {} points{which}?", ids.len())
            }
            Self::Reset { ids } => format!("reset {} points{which}?", ids.len()),
        }
    }
}

impl App {
    /// Off with all points shown, or on again if none of them measures.
    pub(super) fn toggle_all(&mut self, now: Instant) {
        let on = !self.shown().any(|figures| figures.state() == PointState::On);
        let differs = |figures: &&Figures| (figures.state() == PointState::On) != on;
        let ids = self.shown().filter(differs).map(Figures::id).collect();
        self.ask(Question::Switch { ids, on }, now);
    }

    /// All points shown afresh.
    pub(super) fn reset_all(&mut self, now: Instant) {
        let ids = self.shown().map(Figures::id).collect();
        self.ask(Question::Reset { ids }, now);
    }

    fn shown(&self) -> impl Iterator<Item = &Figures> {
        self.order.iter().filter_map(|id| self.model.point(*id))
    }

    fn ask(&mut self, question: Question, now: Instant) {
        let (Question::Switch { ids, .. } | Question::Reset { ids }) = &question;
        match ids.len() {
            0 => self.say(now, "there is nothing to change"),
            1 => self.carry_out(question, now),
            _ => self.overlay = Some(Overlay::Ask(question)),
        }
    }

    /// Does what was asked for and answered with yes.
    pub(super) fn carry_out(&mut self, question: Question, now: Instant) {
        let Some(session) = &mut self.session else {
            return;
        };
        let (done, text) = match question {
            Question::Switch { ids, on } => {
                let mut switch = |id: u32| {
                    let Some(found) = self.model.point(id).map(Figures::state) else {
                        return Ok(());
                    };
                    let left = session.switch(id, found, on)?;
                    self.model.expect_state(id, left);
                    Ok(())
                };
                let word = if on { "on" } else { "off" };
                let text = format!("{} points are {word}", ids.len());
                (ids.into_iter().try_for_each(&mut switch), text)
            }
            Question::Reset { ids } => {
                let text = format!("{} points start afresh", ids.len());
                (ids.into_iter().try_for_each(|id| session.reset(id)), text)
            }
        };
        match done {
            Ok(()) => self.say(now, text),
            Err(error) => self.complain(now, format!("{error:#}")),
        }
    }

    /// Asks for the weight of the point's exponential average.
    pub(super) fn ask_weight(&mut self) {
        let Some(figures) = self.meant() else {
            return;
        };
        let text = figures.point().alpha.map_or(String::new(), weight::written);
        let prompt = Prompt::new("alpha, T/tau or off", &text);
        self.overlay = Some(Overlay::Weight(figures.id(), prompt));
    }

    /// Sets it to what was typed, or says what is wrong with that.
    pub(super) fn set_weight(&mut self, id: u32, mut prompt: Prompt, now: Instant) {
        let Some(session) = &mut self.session else {
            return;
        };
        let set = weight::parse(&prompt.text()).and_then(|alpha| {
            let set = session.set_alpha(id, alpha);
            set.map(|()| alpha).map_err(|error| format!("{error:#}"))
        });
        match set {
            Ok(alpha) => {
                let name = self.model.point(id).map_or(String::new(), Figures::name);
                let text = match alpha {
                    Some(alpha) => format!("{name} averages with alpha {}", weight::written(alpha)),
                    None => format!("{name} averages no more"),
                };
                self.say(now, text);
            }
            Err(why) => {
                prompt.trouble = Some(why);
                self.overlay = Some(Overlay::Weight(id, prompt));
            }
        }
    }

    /// Hands the point's row to the terminal's clipboard, with the titles of its
    /// figures.
    pub(super) fn copy_row(&mut self, now: Instant) {
        let (Some(figures), Some(snapshot)) = (self.meant(), self.model.snapshot()) else {
            return;
        };
        let scale = Scale { ticks_per_second: snapshot.clock.ticks_per_second, unit: self.unit };
        let mut parts = vec![figures.name()];
        let point = figures.point();
        if !point.file.is_empty() {
            parts.push(format!("{}:{}", point.file, point.line));
        }
        let columns = self.shown_columns().into_iter();
        let figures_of = columns.filter(|c| *c != Column::Name && !c.is_drawn());
        parts.extend(figures_of.map(|c| format!("{} {}", c.title(), c.text(figures, &scale))));
        let name = figures.name();
        self.clipboard = Some(parts.join("  "));
        self.say(now, format!("the row of {name} went to the terminal's clipboard"));
    }

    /// What is to be put into the terminal's clipboard, once.
    pub fn take_clipboard(&mut self) -> Option<String> {
        self.clipboard.take()
    }
}

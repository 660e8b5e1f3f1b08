//! Typing what is looked for: the filter of the points, and regions on the timeline.

use std::collections::HashSet;
use std::time::Instant;

use super::{App, Filter, Overlay, Prompt, Screen};
use crate::model::Figures;

impl App {
    /// Opens the line for the filter, on a screen that shows points; on the timeline
    /// the one for what to find.
    pub(super) fn ask_filter(&mut self, now: Instant) {
        match self.screen {
            Screen::Timeline => {
                self.overlay = Some(Overlay::Find(Prompt::new("find", self.timeline.sought())));
                return;
            }
            Screen::Points | Screen::Diff | Screen::Roofline => {}
            _ => self.show(Screen::Points, now),
        }
        let prompt = Prompt::new("filter", self.common.filter.text());
        self.overlay = Some(Overlay::Filter(prompt.with_earlier(self.filters.clone())));
    }

    /// Brings an earlier filter into the line, or a later one.
    pub(super) fn recall(&mut self, earlier: bool, now: Instant) {
        if let Some(Overlay::Filter(prompt)) = &mut self.overlay {
            prompt.recall(earlier);
            self.typed(now);
        }
    }

    pub(super) fn remember_filter(&mut self, text: String) {
        self.filters.retain(|known| *known != text);
        if !text.is_empty() {
            self.filters.push(text);
        }
    }

    /// Minds what was just typed into a prompt.
    pub(super) fn typed(&mut self, now: Instant) {
        let filter = match &mut self.overlay {
            Some(Overlay::Filter(prompt)) => match Filter::new(&prompt.text()) {
                Ok(filter) => {
                    prompt.trouble = None;
                    filter
                }
                // The rows stay as they are until it can be read again.
                Err(why) => return prompt.trouble = Some(why),
            },
            Some(
                Overlay::Weight(_, prompt)
                | Overlay::Seek(prompt)
                | Overlay::Find(prompt)
                | Overlay::Write(prompt),
            ) => return prompt.trouble = None,
            _ => return,
        };
        self.filter_by(filter, now);
    }

    pub(super) fn filter_by(&mut self, filter: Filter, now: Instant) {
        self.common.filter = filter;
        self.sort_by(self.sorting, now);
    }

    /// Takes what was typed to be found on the timeline, and goes to the newest of it.
    pub(super) fn find(&mut self, mut prompt: Prompt, now: Instant) {
        let text = prompt.text();
        match Filter::new(&text) {
            Ok(_) => {
                self.timeline.seek(&text);
                self.find_next(now);
            }
            Err(why) => {
                prompt.trouble = Some(why);
                self.overlay = Some(Overlay::Find(prompt));
            }
        }
    }

    /// To the next earlier region of what is looked for, or else to the newest.
    pub(super) fn find_next(&mut self, now: Instant) {
        let text = self.timeline.sought().to_owned();
        let Ok(filter) = Filter::new(&text) else { return };
        if !filter.is_on() {
            return self.common.say(now, "/ finds a region by the name of its point");
        }
        let points = self.common.model.points().iter();
        let wanted: HashSet<u32> = points.filter(|f| filter.admits(f)).map(Figures::id).collect();
        if !self.timeline.go_to_one_of(&wanted) {
            self.common.say(now, format!("no region is known of {text}"));
        }
    }

    /// To the slowest call that is known of the point under the cursor.
    pub(super) fn find_slowest(&mut self, now: Instant) {
        let Some((id, _, name)) = self.point_meant(now) else { return };
        self.timeline.go_to_slowest(id);
        self.common.say(now, format!("the slowest call of {name} that is still known"));
    }
}

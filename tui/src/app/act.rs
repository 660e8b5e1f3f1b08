//! What each action does.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Action, App, FREEZE, Overlay, Prompt, Screen, Status, default_file_name};
use crate::columns::Sorting;
use crate::export::json::{self, Overwrite, WriteError};
use crate::snapshot::PointState;
use crate::source::{Candidate, Discovery, Members, Together, Wanted};
use crate::units::Unit;

/// The poll intervals that `+` and `-` walk through, milliseconds.
const INTERVALS_MS: [u64; 7] = [100, 200, 500, 1000, 2000, 5000, 10_000];

impl App {
    /// Does what the user asked for.
    pub fn act(&mut self, action: Action, now: Instant) {
        match action {
            Action::Quit => self.quit = true,
            Action::Help => self.overlay = Some(Overlay::Help(0)),
            Action::Up => self.walk(-1, now),
            Action::Down => self.walk(1, now),
            Action::PageUp => self.page(-1, now),
            Action::PageDown => self.page(1, now),
            Action::Top => self.walk(isize::MIN, now),
            Action::Bottom => self.walk(isize::MAX, now),
            Action::Open => self.open(now),
            Action::Back => self.back(),
            Action::SortLeft => self.sort_by(self.sorting.moved(false), now),
            Action::SortRight => self.sort_by(self.sorting.moved(true), now),
            Action::Invert => self.sort_by(self.sorting.inverted(), now),
            Action::Toggle => self.toggle(now),
            Action::Reset => self.reset(now),
            Action::Pause => self.pause(now),
            Action::Slower => self.change_interval(true, now),
            Action::Faster => self.change_interval(false, now),
            Action::Units => {
                self.unit = match self.unit {
                    Unit::Time => Unit::Cycles,
                    Unit::Cycles => Unit::Time,
                }
            }
            Action::Write => {
                if let Some(snapshot) = self.model.snapshot() {
                    let name = default_file_name(snapshot);
                    self.overlay = Some(Overlay::Write(Prompt::new("write snapshot to", &name)));
                }
            }
            Action::Processes => {
                self.screen = Screen::Picker;
                self.marked.clear();
                self.offset = 0;
                self.poll(now);
            }
            Action::Mark => self.mark(),
            Action::OpenSummed => self.open_marked(true, now),
            Action::Accept => match self.overlay.take() {
                Some(Overlay::Write(prompt)) => self.write(prompt, Overwrite::No, now),
                Some(Overlay::Replace(prompt)) => self.write(prompt, Overwrite::Yes, now),
                other => self.overlay = other,
            },
            Action::Cancel => {
                self.overlay = match self.overlay.take() {
                    Some(Overlay::Replace(prompt)) => Some(Overlay::Write(prompt)),
                    _ => None,
                }
            }
        }
    }

    fn walk(&mut self, rows: isize, now: Instant) {
        if let Some(Overlay::Help(offset)) = &mut self.overlay {
            // Kept within the text when the screen's size is next known.
            *offset = offset.saturating_add_signed(rows);
            return;
        }
        let (place, len) = self.cursor();
        let place = place.saturating_add_signed(rows).min(len.saturating_sub(1));
        if self.screen == Screen::Picker {
            self.picked = self.candidates.get(place).map(|c| c.segment_id.clone());
        } else {
            self.selected = self.order.get(place).copied();
            self.detail_offset = 0;
            self.frozen_until = Some(now + FREEZE);
        }
    }

    fn page(&mut self, pages: isize, now: Instant) {
        let rows = pages * self.rows as isize;
        if self.screen == Screen::Detail && self.overlay.is_none() {
            self.detail_offset = self.detail_offset.saturating_add_signed(rows);
        } else {
            self.walk(rows, now);
        }
    }

    fn open(&mut self, now: Instant) {
        match self.screen {
            Screen::Points if self.selected.is_some() => {
                self.detail_offset = 0;
                self.screen = Screen::Detail;
            }
            Screen::Picker if !self.marked.is_empty() => self.open_marked(false, now),
            Screen::Picker => {
                let (place, _) = self.cursor();
                if let Some(candidate) = self.candidates.get(place).cloned() {
                    self.attach(&candidate, now);
                }
            }
            Screen::Waiting | Screen::Points | Screen::Detail => {}
        }
    }

    fn mark(&mut self) {
        let (place, len) = self.cursor();
        let Some(candidate) = self.candidates.get(place) else { return };
        if !self.marked.remove(&candidate.segment_id) {
            self.marked.insert(candidate.segment_id.clone());
        }
        // On to the next, so that a row of them is a row of blanks.
        let next = self.candidates.get((place + 1).min(len - 1));
        self.picked = next.map(|candidate| candidate.segment_id.clone());
    }

    /// Opens the marked ones that are still there, in their order.
    fn open_marked(&mut self, sum: bool, now: Instant) {
        let ids = self.candidates.iter().map(|candidate| &candidate.segment_id);
        let ids: Vec<String> = ids.filter(|id| self.marked.contains(*id)).cloned().collect();
        if ids.is_empty() {
            return self.say(now, "Space marks the processes to open");
        }
        self.attach_together(&Together { members: Members::Segments(ids), sum }, now);
    }

    fn back(&mut self) {
        if self.overlay.take().is_none() && self.session.is_some() {
            self.screen = Screen::Points;
        }
    }

    fn sort_by(&mut self, sorting: Sorting, now: Instant) {
        self.sorting = sorting;
        self.frozen_until = None;
        self.sort(now);
    }

    fn toggle(&mut self, now: Instant) {
        let Some((id, found, name)) = self.selected_point() else {
            return;
        };
        match self.session.as_mut().map(|session| session.toggle(id, found)) {
            Some(Ok(state)) => {
                self.model.expect_state(id, state);
                let word = if state == PointState::On { "on" } else { "off" };
                self.say(now, format!("{name} is {word}"));
            }
            Some(Err(error)) => self.complain(now, format!("{error:#}")),
            None => {}
        }
    }

    fn reset(&mut self, now: Instant) {
        let Some((id, _, name)) = self.selected_point() else {
            return;
        };
        match self.session.as_mut().map(|session| session.reset(id)) {
            Some(Ok(())) => self.say(now, format!("{name} starts afresh")),
            Some(Err(error)) => self.complain(now, format!("{error:#}")),
            None => {}
        }
    }

    fn selected_point(&self) -> Option<(u32, PointState, String)> {
        let figures = self.selected()?;
        Some((figures.id(), figures.state(), figures.name()))
    }

    fn pause(&mut self, now: Instant) {
        match self.status() {
            Status::Live => {
                self.paused = true;
                self.model.pause();
            }
            Status::Paused => {
                self.paused = false;
                self.ended_unseen = None;
                self.next_poll = now;
            }
            Status::Waiting | Status::Exited | Status::Crashed | Status::File => {
                self.say(now, "these figures stand still already");
            }
        }
    }

    fn change_interval(&mut self, longer: bool, now: Instant) {
        let mut steps = INTERVALS_MS.into_iter().map(Duration::from_millis);
        let step = if longer {
            steps.find(|step| *step > self.interval)
        } else {
            steps.rfind(|step| *step < self.interval)
        };
        if let Some(step) = step {
            self.interval = step;
            self.next_poll = self.next_poll.min(now + step);
        }
        self.say(now, format!("a poll every {} s", self.interval.as_secs_f64()));
    }

    fn write(&mut self, prompt: Prompt, overwrite: Overwrite, now: Instant) {
        let (Some(snapshot), Some(session)) = (self.model.snapshot(), &mut self.session) else {
            return;
        };
        let snapshot = session.whole(snapshot);
        let path = PathBuf::from(prompt.text());
        if path.as_os_str().is_empty() {
            return self.complain(now, "nothing written: no name given");
        }
        let shown = crate::text::clean(&prompt.text()).into_owned();
        match json::write(&snapshot, &path, overwrite) {
            Ok(()) => self.say(now, format!("wrote {shown}")),
            Err(WriteError::Exists) => self.overlay = Some(Overlay::Replace(prompt)),
            Err(WriteError::Io(error)) => {
                self.complain(now, format!("{shown} not written: {error}"));
            }
        }
    }
}

/// Every process that fits, those that run first, then the youngest first.
pub(super) fn all_candidates(discovery: &Discovery, wanted: &Wanted) -> Vec<Candidate> {
    let fits = |candidate: &&Candidate| wanted.is_any() || wanted.admits(candidate);
    let mut all: Vec<_> = discovery.candidates.iter().filter(fits).cloned().collect();
    all.sort_by_key(|c| (!c.runs(), std::cmp::Reverse(c.started_unix_ns)));
    all
}

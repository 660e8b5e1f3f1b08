//! What each action does.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Action, App, Errand, Filter, Overlay, Prompt, Screen, Status, default_file_name};
use crate::columns::Sorting;
use crate::export::json::{self, Overwrite, WriteError};
use crate::export::packed;
use crate::model::threads::find;
use crate::snapshot::PointState;
use crate::source::{Candidate, Discovery, Members, Together, Wanted};
use crate::units::Unit;

/// The poll intervals that `+` and `-` walk through, milliseconds.
const INTERVALS_MS: [u64; 7] = [100, 200, 500, 1000, 2000, 5000, 10_000];

/// Columns that one key scrolls the names by.
const SCROLL: usize = 8;

/// Whether a file of this name is to hold the segment itself, as it is now:
/// `NAME.pfp`, or `NAME.pfp.zst`.
fn is_raw(path: &Path) -> bool {
    let ends = |path: &Path| path.extension().is_some_and(|end| end == "pfp");
    ends(path) || packed::is_named(path) && ends(&path.with_extension(""))
}

impl App {
    /// Does what the user asked for.
    pub fn act(&mut self, action: Action, now: Instant) {
        match action {
            Action::Quit => self.quit = true,
            Action::Suspend => self.common.errand = Some(Errand::Suspend),
            Action::Redraw => self.common.errand = Some(Errand::Redraw),
            Action::Help => self.overlay = Some(Overlay::Help(0)),
            Action::Up | Action::Down if matches!(self.overlay, Some(Overlay::Filter(_))) => {
                self.recall(action == Action::Up, now);
            }
            Action::Up => self.walk(-1, now),
            Action::Down => self.walk(1, now),
            Action::PageUp => self.page(-1, now),
            Action::PageDown => self.page(1, now),
            Action::Top => self.walk(isize::MIN, now),
            Action::Bottom => self.walk(isize::MAX, now),
            Action::Open => self.open(now),
            Action::Below => {
                self.threads.opened = !self.threads.opened;
                self.detail_offset = 0;
            }
            Action::Back => self.back(now),
            Action::Filter => self.ask_filter(now),
            Action::FindNext => self.find_next(now),
            Action::Slowest => self.find_slowest(now),
            Action::ScrollLeft => self.name_offset = self.name_offset.saturating_sub(SCROLL),
            // Kept within the longest name when the screen's size is next known.
            Action::ScrollRight => self.name_offset += SCROLL,
            Action::Sort => self.overlay = Some(Overlay::Sort(self.sorting.column)),
            Action::Invert if matches!(self.overlay, Some(Overlay::Sort(_))) => {
                self.overlay = None;
                self.sort_by(self.sorting.inverted(), now);
            }
            Action::Unfilter => {
                self.overlay = None;
                self.filter_by(Filter::default(), now);
            }
            Action::SortLeft | Action::SortRight | Action::Invert
                if self.screen == Screen::Threads =>
            {
                match action {
                    Action::Invert => self.threads.descending = !self.threads.descending,
                    _ => self.threads.move_sorting(action == Action::SortRight),
                }
                self.common.frozen_until = None;
                self.sort(now);
            }
            Action::SortLeft => self.move_sorting(false, now),
            Action::SortRight => self.move_sorting(true, now),
            Action::Invert => self.sort_by(self.sorting.inverted(), now),
            Action::Toggle => self.toggle(now),
            Action::Reset => self.reset(now),
            Action::ToggleAll => self.toggle_all(now),
            Action::ResetAll => self.reset_all(now),
            Action::Weight => self.ask_weight(),
            Action::Fence => self.fence(now),
            Action::ShowIdle => self.show_idle(now),
            Action::Copy => self.copy_row(now),
            Action::Columns => self.choose_columns(),
            Action::Check => self.check_column(),
            Action::ColumnLeft => self.move_column(false),
            Action::ColumnRight => self.move_column(true),
            Action::Pause => self.pause(now),
            Action::Window => self.since = self.since.next(),
            Action::Moment => self.mark_moment(),
            Action::Slower => self.change_interval(true, now),
            Action::Faster => self.change_interval(false, now),
            Action::Units => {
                self.common.unit = match self.common.unit {
                    Unit::Time => Unit::Cycles,
                    Unit::Cycles => Unit::Time,
                }
            }
            Action::Write => {
                if let Some(snapshot) = self.common.model.snapshot() {
                    let name = default_file_name(snapshot);
                    self.overlay = Some(Overlay::Write(Prompt::new("write snapshot to", &name)));
                }
            }
            Action::Baseline => self.take_baseline(now),
            Action::Processes => {
                if self.screen != Screen::Detail {
                    self.came_from = self.screen;
                }
                self.screen = Screen::Picker;
                self.marked.clear();
                self.offset = 0;
                self.poll(now);
            }
            Action::Earlier if self.screen == Screen::Detail => self.pan_load(false, now),
            Action::Later if self.screen == Screen::Detail => self.pan_load(true, now),
            Action::Oldest if self.screen == Screen::Detail => self.oldest_load(now),
            Action::Newest if self.screen == Screen::Detail => self.newest_load(),
            Action::ZoomIn if self.screen == Screen::Detail => self.zoom_load(true, now),
            Action::ZoomOut if self.screen == Screen::Detail => self.zoom_load(false, now),
            Action::Earlier => self.timeline.step(false),
            Action::Later => self.timeline.step(true),
            Action::MuchEarlier => self.timeline.pan(false),
            Action::MuchLater => self.timeline.pan(true),
            Action::Oldest => self.timeline.go_to_oldest(),
            Action::Newest => self.timeline.follow(),
            Action::ZoomIn => self.timeline.zoom(true),
            Action::ZoomOut => self.timeline.zoom(false),
            Action::ShowPoints => self.show(Screen::Points, now),
            Action::ShowDetail => self.show(Screen::Detail, now),
            Action::ShowThreads => self.show(Screen::Threads, now),
            Action::ShowTimeline => self.show(Screen::Timeline, now),
            Action::ShowDiff => self.show(Screen::Diff, now),
            Action::ShowLog => self.show(Screen::Log, now),
            Action::ShowRoofline => self.show(Screen::Roofline, now),
            Action::MeasureCeilings => self.measure_ceilings(now),
            Action::NextScreen => self.turn(1, now),
            Action::PreviousScreen => self.turn(Screen::TABS.len() - 1, now),
            Action::StepBack => self.step(-1, now),
            Action::StepOn => self.step(1, now),
            Action::MinuteBack => self.skip_minute(false, now),
            Action::MinuteOn => self.skip_minute(true, now),
            Action::RecordingBegin => self.step(isize::MIN, now),
            Action::RecordingEnd => self.step(isize::MAX, now),
            Action::Seek => self.ask_moment(now),
            Action::PlaySlower => self.change_speed(false, now),
            Action::PlayFaster => self.change_speed(true, now),
            Action::Mark => self.mark(),
            Action::OpenSummed => self.open_marked(true, now),
            Action::Accept => match self.overlay.take() {
                Some(Overlay::Write(prompt)) => self.write(prompt, Overwrite::No, now),
                Some(Overlay::Replace(prompt)) => self.write(prompt, Overwrite::Yes, now),
                // What was typed so far is in force already, unless it is no filter.
                Some(Overlay::Filter(prompt)) if prompt.trouble.is_some() => {
                    self.overlay = Some(Overlay::Filter(prompt));
                }
                Some(Overlay::Filter(prompt)) => self.remember_filter(prompt.text()),
                Some(Overlay::Find(prompt)) => self.find(prompt, now),
                Some(Overlay::Sort(column)) => self.sort_by(Sorting::by(column), now),
                Some(Overlay::Weight(id, prompt)) => self.set_weight(id, prompt, now),
                Some(Overlay::Ask(question)) => self.carry_out(question, now),
                Some(Overlay::Seek(prompt)) => self.seek(prompt, now),
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

    pub(super) fn walk(&mut self, rows: isize, now: Instant) {
        if let Some(Overlay::Help(offset)) = &mut self.overlay {
            // Kept within the text when the screen's size is next known.
            *offset = offset.saturating_add_signed(rows);
            return;
        }
        if self.walk_columns(rows) {
            return;
        }
        if self.screen == Screen::Log {
            return self.scroll_log(rows);
        }
        let (place, len) = self.cursor();
        let place = place.saturating_add_signed(rows).min(len.saturating_sub(1));
        if self.screen == Screen::Timeline {
            self.timeline.select_line(place);
        } else if self.screen == Screen::Threads {
            self.threads.select_row(place);
            self.detail_offset = 0;
            self.common.freeze(now);
        } else if self.screen == Screen::Picker {
            self.picked = self.candidates.get(place).map(|c| c.segment_id.clone());
        } else {
            self.common.selected = self.listed().get(place).copied();
            self.detail_offset = 0;
            self.common.freeze(now);
            self.look_back();
            self.follow();
        }
    }

    fn page(&mut self, pages: isize, now: Instant) {
        let rows = pages * self.common.rows as isize;
        let opened = self.screen == Screen::Threads && self.threads.opened;
        if (self.screen == Screen::Detail || opened) && self.overlay.is_none() {
            self.detail_offset = self.detail_offset.saturating_add_signed(rows);
        } else {
            self.walk(rows, now);
        }
    }

    pub(super) fn open(&mut self, now: Instant) {
        match self.screen {
            Screen::Diff if self.common.selected.is_some() && self.common.selected().is_none() => {
                self.common.say(now, "only the baseline has that point");
            }
            Screen::Points | Screen::Diff | Screen::Roofline if self.common.selected.is_some() => {
                self.detail_offset = 0;
                self.show(Screen::Detail, now);
            }
            Screen::Timeline => {
                if let Some((_, region)) = self.timeline.region() {
                    self.common.selected = Some(region.point);
                    self.detail_offset = 0;
                    self.show(Screen::Detail, now);
                }
            }
            Screen::Picker if !self.marked.is_empty() => self.open_marked(false, now),
            Screen::Picker => {
                let (place, _) = self.cursor();
                if let Some(candidate) = self.candidates.get(place).cloned() {
                    self.attach(&candidate, now);
                }
            }
            Screen::Waiting
            | Screen::Points
            | Screen::Detail
            | Screen::Diff
            | Screen::Roofline
            | Screen::Log => {}
            Screen::Threads => self.show_points_of_thread(now),
        }
    }

    /// The points that the thread under the cursor was in.
    fn show_points_of_thread(&mut self, now: Instant) {
        let threads = self.common.model.thread_figures();
        let Some(thread) = self.threads.selected.and_then(|lane| find(threads, lane)) else {
            return;
        };
        let lane = &thread.lane;
        let named = threads.iter().filter(|other| other.lane.name == lane.name).count();
        let filter = Filter::of_thread(&lane.name, lane.tid, named == 1);
        let name = if lane.name.is_empty() { filter.text() } else { &lane.name };
        let text = format!("points that {name} was in, with what others did; Esc shows all");
        self.common.selected = None;
        self.offset = 0;
        self.show(Screen::Points, now);
        self.filter_by(filter, now);
        self.common.say(now, text);
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
            return self.common.say(now, "Space marks the processes to open");
        }
        self.attach_together(&Together { members: Members::Segments(ids), sum }, now);
    }

    /// Shows one of the screens of the watched process.
    pub(super) fn show(&mut self, screen: Screen, now: Instant) {
        if self.screen != Screen::Detail && self.screen.tab().is_some() {
            self.came_from = self.screen;
        }
        self.screen = screen;
        if screen != Screen::Diff && self.common.selected().is_none() {
            self.common.selected = self.common.order.first().copied();
        }
        if screen.wants_records() {
            self.look_at_records(now);
        }
        match screen {
            Screen::Diff => self.begin_diff(),
            Screen::Log => self.begin_log(),
            Screen::Roofline => self.begin_roofline(),
            Screen::Detail => self.look_back(),
            _ => {}
        }
        self.follow();
    }

    /// Gives the timeline what the rings hold now. In a pause it has what they
    /// held when that began.
    fn look_at_records(&mut self, now: Instant) {
        let status = self.common.status();
        let (Some(snapshot), Some(session)) =
            (self.common.model.snapshot(), &mut self.common.session)
        else {
            return;
        };
        match status {
            Status::Paused => {}
            // Of the figures' own moment, a busy ring may hold nothing any more.
            Status::Live => match session.poll() {
                Ok(mut snapshot) => {
                    session.add_records(&mut snapshot);
                    self.take_records(&snapshot);
                }
                Err(error) => self.common.complain(now, format!("{error:#}")),
            },
            _ => {
                let whole = session.whole(snapshot);
                self.take_records(&whole);
            }
        }
    }

    /// Goes on by so many screens, round and round.
    fn turn(&mut self, screens: usize, now: Instant) {
        if let Some(tab) = self.screen.tab() {
            self.show(Screen::TABS[(tab + screens) % Screen::TABS.len()].0, now);
        }
    }

    fn back(&mut self, now: Instant) {
        if self.overlay.take().is_some() {
            return;
        }
        if self.common.session.is_none() {
            self.common.say(now, "Enter opens a process, q quits");
        } else {
            match self.screen {
                Screen::Detail | Screen::Picker => self.show(self.came_from, now),
                Screen::Threads if self.threads.opened => self.threads.opened = false,
                _ => self.show(Screen::Points, now),
            }
        }
    }

    /// Sorts by the next column that is there to be seen.
    fn move_sorting(&mut self, right: bool, now: Instant) {
        self.sort_by(self.sorting.moved(right, &self.shown_columns()), now);
    }

    pub(super) fn sort_by(&mut self, sorting: Sorting, now: Instant) {
        self.sorting = sorting;
        self.common.frozen_until = None;
        self.sort(now);
    }

    fn toggle(&mut self, now: Instant) {
        let Some((id, found, name)) = self.point_meant(now) else {
            return;
        };
        // Of a point that is off no newer regions come; the same key is to switch
        // the same point on again.
        if self.screen == Screen::Timeline {
            self.timeline.hold();
        }
        match self.common.session.as_mut().map(|session| session.toggle(id, found)) {
            Some(Ok(state)) => {
                self.common.model.expect_state(id, state);
                self.common.log.toggled(self.common.unix_ns(now), id, &name, state);
                let word = if state == PointState::On { "on" } else { "off" };
                self.common.say(now, format!("{name} is {word}"));
            }
            Some(Err(error)) => self.common.complain(now, format!("{error:#}")),
            None => {}
        }
    }

    fn fence(&mut self, now: Instant) {
        let Some((id, _, name)) = self.point_meant(now) else { return };
        let is_fenced = self.common.model.point(id).is_some_and(|figures| figures.point().fenced);
        match self.common.session.as_mut().map(|session| session.fence(id, !is_fenced)) {
            Some(Ok(())) if is_fenced => self.common.say(now, format!("{name} has no fences")),
            Some(Ok(())) => self.common.say(now, format!("{name} is fenced: its stamps wait")),
            Some(Err(error)) => self.common.complain(now, format!("{error:#}")),
            None => {}
        }
    }

    /// What the keys mean, or a word that it is nothing.
    pub(super) fn point_meant(&mut self, now: Instant) -> Option<(u32, PointState, String)> {
        let found = self.meant().map(|meant| {
            let of =
                meant.process().map_or(String::new(), |p| format!(" of {}[{}]", p.name, p.pid));
            (meant.id(), meant.state(), meant.name() + &of)
        });
        if found.is_none() && self.screen == Screen::Timeline {
            self.common.say(now, "there is no region under the cursor");
        }
        found
    }

    fn pause(&mut self, now: Instant) {
        match self.common.status() {
            Status::Live => {
                // Soon the rings will have forgotten this moment.
                self.look_at_records(now);
                self.common.paused = true;
                self.common.model.pause();
            }
            Status::Paused => {
                self.common.paused = false;
                self.common.ended_unseen = None;
                self.next_poll = now;
            }
            Status::Replay => self.play_or_stop(now),
            Status::Waiting | Status::Exited | Status::Crashed | Status::File => {
                self.common.say(now, "these figures stand still already");
            }
        }
    }

    fn change_interval(&mut self, longer: bool, now: Instant) {
        if self.common.replay.is_some() {
            return self.common.say(now, "a recording is not polled; ] plays it faster, [ slower");
        }
        let mut steps = INTERVALS_MS.into_iter().map(Duration::from_millis);
        let step = if longer {
            steps.find(|step| *step > self.common.interval)
        } else {
            steps.rfind(|step| *step < self.common.interval)
        };
        if let Some(step) = step {
            self.common.interval = step;
            self.next_poll = self.next_poll.min(now + step);
        }
        self.common.say(now, format!("every {} s", self.common.interval.as_secs_f64()));
    }

    fn write(&mut self, prompt: Prompt, overwrite: Overwrite, now: Instant) {
        let (Some(snapshot), Some(session)) =
            (self.common.model.snapshot(), &mut self.common.session)
        else {
            return;
        };
        let snapshot = session.whole(snapshot);
        let path = PathBuf::from(prompt.text());
        let refused = |why: String| {
            let mut prompt = prompt.clone();
            prompt.trouble = Some(why);
            Some(Overlay::Write(prompt))
        };
        if path.as_os_str().is_empty() {
            self.overlay = refused("a name is needed".into());
            return;
        }
        let shown = crate::text::clean(&prompt.text()).into_owned();
        let written = if is_raw(&path) {
            session.save_raw(&path, overwrite)
        } else {
            json::write(&snapshot, &path, overwrite)
        };
        match written {
            Ok(()) => {
                self.common.log.note(self.common.unix_ns(now), format!("wrote {shown}"));
                self.common.say(now, format!("wrote {shown}"));
            }
            Err(WriteError::Exists) => self.overlay = Some(Overlay::Replace(prompt)),
            // What was typed stays to be mended.
            Err(WriteError::Io(error)) => {
                self.overlay = refused(format!("not written: {error}"));
                self.common
                    .log
                    .note(self.common.unix_ns(now), format!("{shown} not written: {error}"));
            }
        }
    }
}

/// Every process that fits, those that run first, then the youngest first.
pub(super) fn all_candidates(discovery: &Discovery, wanted: &Wanted) -> Vec<Candidate> {
    let found = &discovery.candidates;
    let fits = |candidate: &&Candidate| wanted.is_any() || wanted.admits(candidate, found);
    let mut all: Vec<_> = found.iter().filter(fits).cloned().collect();
    all.sort_by_key(|c| (!c.runs(), std::cmp::Reverse(c.started_unix_ns)));
    all
}

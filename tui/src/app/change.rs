//! Makes changes in the watched program, logs them, and undoes them.
//!
//! A process at another place answers later. Until then, the screen shows the change as if it were
//! made, and says that it is not confirmed. [`App::hear`] logs it when the answer arrives.

use anyhow::Result;

use super::App;
use crate::common::Severity;
use pfp_read::session::{BeforeReset, Session};
use pfp_read::snapshot::PointState;
use pfp_read::source::{Acted, Change, ChangeAnswer, Refusal, change_each};
use pfp_read::text;

/// Maximum number of changes that can be undone.
const MAX_UNDO: usize = 100;

/// The changes of one command of the user, and the data to undo them.
pub(super) struct UndoEntry {
    /// The changes in words, such as `switched off parse`.
    what: String,
    back: Vec<Change>,
    /// The figures of points that were reset.
    figures: Vec<BeforeReset>,
}

impl UndoEntry {
    /// Whether it undoes a change.
    fn is_about(&self, change: Change) -> bool {
        let is_reset = matches!(change, Change::Reset(_));
        let resets = self.figures.iter().any(|figures| figures.point == change.point());
        is_reset && resets || self.back.iter().any(|back| is_alike(*back, change))
    }

    /// Leaves out what undoes a change that was refused. Returns false if that is all.
    fn forget(&mut self, refused: Change) -> bool {
        let id = refused.point();
        match refused {
            Change::Reset(_) => self.figures.retain(|figures| figures.point != id),
            _ => self.back.retain(|back| !is_alike(*back, refused)),
        }
        !self.back.is_empty() || !self.figures.is_empty()
    }
}

/// Whether two changes set the same property of the same point.
fn is_alike(one: Change, other: Change) -> bool {
    use Change::{Disable, Enable, Reset, SetAlpha, SetFlag, SetLimit};
    let is_same_kind = matches!(
        (one, other),
        (Enable(_) | Disable(_), Enable(_) | Disable(_))
            | (Reset(_), Reset(_))
            | (SetAlpha(..), SetAlpha(..))
            | (SetLimit(..), SetLimit(..))
    ) || matches!((one, other), (SetFlag(_, one, _), SetFlag(_, other, _)) if one == other);
    is_same_kind && one.point() == other.point()
}

/// Changes that were requested from another place and are not confirmed yet.
#[derive(Default)]
pub(super) struct Requested {
    changes: Vec<Change>,
    /// The message about the last of them, repeated when all are confirmed.
    said: Option<String>,
    /// What the last undo has taken from the stack. It returns there if the undo is refused.
    undone: Option<UndoEntry>,
}

impl Requested {
    /// The requested state of each point whose switch is not confirmed yet.
    pub(super) fn states(&self) -> impl Iterator<Item = (u32, PointState)> {
        self.changes.iter().filter_map(|change| match *change {
            Change::Enable(id) => Some((id, PointState::On)),
            Change::Disable(id) => Some((id, PointState::Off)),
            _ => None,
        })
    }
}

impl App {
    /// Makes and logs the changes that the user requested; `what` names them. Stops with an error
    /// at the first change that no process made. Otherwise returns the first error of a change that
    /// only some processes made. All changes made can be undone.
    pub(super) fn make(&mut self, what: &str, changes: &[Change]) -> Result<()> {
        let mut entry = UndoEntry { what: what.to_owned(), back: Vec::new(), figures: Vec::new() };
        let resets = |change: &Change| matches!(change, Change::Reset(_));
        let before = match &mut self.common.session {
            Some(session) if changes.iter().any(resets) => session.poll().ok(),
            _ => None,
        };
        let done = change_each(changes, |change| {
            let (back, id) = (self.inverse(*change), change.point());
            let done = self.change(*change);
            if done.as_ref().err().is_none_or(Refusal::is_partly) {
                let reset = before.as_ref().filter(|_| resets(change));
                entry.figures.extend(reset.and_then(|before| BeforeReset::of(before, id)));
                entry.back.extend(back);
            }
            done
        });
        if !entry.back.is_empty() || !entry.figures.is_empty() {
            if self.undo_stack.len() == MAX_UNDO {
                self.undo_stack.remove(0);
            }
            self.undo_stack.push(entry);
        }
        done
    }

    /// Says what was done, or what went wrong.
    pub(super) fn say_done(&mut self, done: Result<()>, said: &str) {
        match but_partly(done) {
            Ok(None) if self.requested.changes.is_empty() => self.common.say(said),
            Ok(None) => {
                self.common.say(format!("{said}, not confirmed yet"));
                self.requested.said = Some(said.to_owned());
            }
            Ok(Some(why)) => self.common.notify(Severity::Failure, why),
            Err(error) => self.common.notify(Severity::Error, format!("{error:#}")),
        }
    }

    /// Handles the answers to requested changes. To be called after a poll, before its snapshot is
    /// logged.
    pub(super) fn hear(&mut self) {
        let answers = self.common.session.as_mut().map(Session::answers).unwrap_or_default();
        for ChangeAnswer { change, result } in answers {
            // The session itself has requested the other changes.
            let place = self.requested.changes.iter().position(|requested| *requested == change);
            let Some(place) = place else { continue };
            self.requested.changes.remove(place);
            match but_partly(result.map(drop)) {
                Ok(but) => {
                    self.log_change(change, but.as_deref());
                    if let Some(why) = but {
                        self.requested.said = None;
                        self.common.notify(Severity::Failure, why);
                    }
                }
                Err(error) => self.refused(change, &error),
            }
        }
        if self.requested.changes.is_empty() {
            self.requested.undone = None;
            if let Some(said) = self.requested.said.take() {
                self.common.say(said);
            }
        }
    }

    /// Reports a requested change that was not made, or may not have been made.
    fn refused(&mut self, change: Change, error: &anyhow::Error) {
        self.requested.said = None;
        if let Some(entry) = self.requested.undone.take_if(|it| it.back.contains(&change)) {
            self.undo_stack.push(entry);
        } else if let Some(place) = self.undo_stack.iter().rposition(|entry| entry.is_about(change))
            && !self.undo_stack[place].forget(change)
        {
            self.undo_stack.remove(place);
        }
        let name = self.common.point_name(change.point());
        self.common.notify(Severity::Error, format!("{name}: {error:#}"));
    }

    /// Undoes what the user did last.
    pub(super) fn undo(&mut self) {
        let is_pending = |entry: &UndoEntry| {
            let about = |change: &Change| entry.is_about(*change);
            self.requested.undone.is_some() || self.requested.changes.iter().any(about)
        };
        if self.undo_stack.last().is_some_and(is_pending) {
            return self
                .common
                .say("your last change is not confirmed yet: press U again once it is");
        }
        let Some(entry) = self.undo_stack.pop() else {
            return self.common.say("there is no change of yours to undo");
        };
        let done = self.bring_back(&entry.figures);
        let done = done.and_then(|()| change_each(&entry.back, |change| self.change(*change)));
        self.next_poll = self.common.now;
        match done {
            Err(error) if !Refusal::is_partly(&error) => {
                self.common.notify(Severity::Error, format!("not undone: {error:#}"));
                self.undo_stack.push(entry);
            }
            done => {
                self.say_done(done, &format!("undone: {}", entry.what));
                self.requested.undone = Some(entry).filter(|_| !self.requested.changes.is_empty());
            }
        }
    }

    /// Shows the figures from before a reset again, added to the figures since.
    fn bring_back(&mut self, figures: &[BeforeReset]) -> Result<()> {
        let Some(session) = self.common.session.as_mut().filter(|_| !figures.is_empty()) else {
            return Ok(());
        };
        session.bring_back(figures)?;
        let unix_ns = self.common.unix_ns();
        for figures in figures {
            let name = self.common.point_name(figures.point);
            self.common.log.brought_back(unix_ns, figures.point, &name);
        }
        Ok(())
    }

    /// Makes a change to one point and logs it, or requests it from another place.
    fn change(&mut self, change: Change) -> Result<()> {
        let id = change.point();
        let Some(figures) = self.common.model.point(id) else { return Ok(()) };
        let shown = figures.state();
        let Some(session) = &mut self.common.session else { return Ok(()) };
        let mut switch = |on, left| {
            let acted = session.switch(id, shown, on)?;
            self.common.model.expect_state(id, left);
            anyhow::Ok(acted)
        };
        let done = match change {
            Change::Enable(_) => switch(true, PointState::On),
            Change::Disable(_) => switch(false, PointState::Off),
            _ => session.act(change),
        };
        if let Change::SetFlag(_, flag, on) = change
            && done.as_ref().err().is_none_or(Refusal::is_partly)
        {
            self.common.model.expect_flag(id, flag, on);
        }
        match &done {
            Ok(Acted::Made(_)) => self.log_change(change, None),
            Ok(Acted::Requested) => {
                self.requested.changes.push(change);
                // Request a picture that shows the change.
                self.next_poll = self.common.now;
            }
            Err(error) if Refusal::is_partly(error) => self.log_change(change, Some(&said(error))),
            Err(_) => {}
        }
        done.map(drop)
    }

    /// Adds a change to the log. `but` says which processes did not follow.
    fn log_change(&mut self, change: Change, but: Option<&str>) {
        let (id, unix_ns) = (change.point(), self.common.unix_ns());
        let Some(figures) = self.common.model.point(id) else { return };
        let name = self.common.full_name(figures);
        let log = &mut self.common.log;
        match change {
            Change::Enable(_) => log.toggled(unix_ns, id, &name, PointState::On, but),
            Change::Disable(_) => log.toggled(unix_ns, id, &name, PointState::Off, but),
            Change::Reset(_) => log.reset(unix_ns, id, &name, but),
            Change::SetAlpha(_, alpha) => log.averaged(unix_ns, id, &name, alpha, but),
            Change::SetLimit(_, limit) => log.limited(unix_ns, id, &name, limit, but),
            Change::SetFlag(_, flag, on) => log.flagged(unix_ns, id, &name, (flag, on), but),
        }
    }

    /// The change that will undo `change`, computed before `change` is made. `None` for a reset.
    fn inverse(&self, change: Change) -> Option<Change> {
        let id = change.point();
        let found = self.common.model.point(id)?;
        match change {
            Change::Enable(_) | Change::Disable(_) => Some(match found.state() {
                PointState::On => Change::Enable(id),
                _ => Change::Disable(id),
            }),
            Change::Reset(_) => None,
            Change::SetAlpha(..) => Some(Change::SetAlpha(id, found.point().alpha)),
            Change::SetLimit(..) => Some(Change::SetLimit(id, found.point().limit)),
            Change::SetFlag(_, flag, _) => Some(Change::SetFlag(id, flag, found.has(flag))),
        }
    }
}

/// Takes a refusal by only some of the processes as success, and returns its message. `None` if no
/// process refused the change.
fn but_partly(done: Result<()>) -> Result<Option<String>> {
    match done {
        Ok(()) => Ok(None),
        Err(error) if Refusal::is_partly(&error) => Ok(Some(said(&error))),
        Err(error) => Err(error),
    }
}

fn said(error: &anyhow::Error) -> String {
    text::clean(&format!("{error:#}")).into_owned()
}

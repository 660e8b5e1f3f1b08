//! Makes changes in the watched program, logs them, and undoes them.

use anyhow::Result;

use super::App;
use crate::common::Severity;
use pfp_read::session::BeforeReset;
use pfp_read::snapshot::PointState;
use pfp_read::source::{Change, Refusal, change_each};
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
            Ok(None) => self.common.say(said),
            Ok(Some(why)) => self.common.notify(Severity::Failure, why),
            Err(error) => self.common.notify(Severity::Error, format!("{error:#}")),
        }
    }

    /// Undoes what the user did last.
    pub(super) fn undo(&mut self) {
        let Some(entry) = self.undo_stack.pop() else {
            return self.common.say("there is no change of yours to undo");
        };
        let done = self.bring_back(&entry.figures);
        let done = done.and_then(|()| change_each(&entry.back, |change| self.change(*change)));
        self.next_poll = self.common.now;
        match but_partly(done) {
            Ok(None) => self.common.say(format!("undone: {}", entry.what)),
            Ok(Some(why)) => self.common.notify(Severity::Failure, why),
            Err(error) => {
                self.common.notify(Severity::Error, format!("not undone: {error:#}"));
                self.undo_stack.push(entry);
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

    /// Makes a change to one point, and logs it.
    fn change(&mut self, change: Change) -> Result<()> {
        let (id, unix_ns) = (change.point(), self.common.unix_ns());
        let Some(figures) = self.common.model.point(id) else { return Ok(()) };
        let (name, shown) = (self.common.full_name(figures), figures.state());
        let Some(session) = &mut self.common.session else { return Ok(()) };
        let mut switch = |on| {
            let left = session.switch(id, shown, on)?.left;
            self.common.model.expect_state(id, left);
            anyhow::Ok(())
        };
        let done = match change {
            Change::Enable(_) => switch(true),
            Change::Disable(_) => switch(false),
            _ => session.act(change).map(drop),
        };
        let but = match &done {
            Ok(()) => None,
            Err(error) if Refusal::is_partly(error) => Some(said(error)),
            Err(_) => return done,
        };
        let (log, but) = (&mut self.common.log, but.as_deref());
        match change {
            Change::Enable(_) => log.toggled(unix_ns, id, &name, PointState::On, but),
            Change::Disable(_) => log.toggled(unix_ns, id, &name, PointState::Off, but),
            Change::Reset(_) => log.reset(unix_ns, id, &name, but),
            Change::SetAlpha(_, alpha) => log.averaged(unix_ns, id, &name, alpha, but),
            Change::Fence(_, fenced) => log.fenced(unix_ns, id, &name, fenced, but),
        }
        done
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
            Change::Fence(..) => Some(Change::Fence(id, found.point().fenced)),
        }
    }
}

/// Takes a refusal by only some of the processes as success, and returns its message. `None` if no
/// process refused the change.
pub(super) fn but_partly(done: Result<()>) -> Result<Option<String>> {
    match done {
        Ok(()) => Ok(None),
        Err(error) if Refusal::is_partly(&error) => Ok(Some(said(&error))),
        Err(error) => Err(error),
    }
}

fn said(error: &anyhow::Error) -> String {
    text::clean(&format!("{error:#}")).into_owned()
}

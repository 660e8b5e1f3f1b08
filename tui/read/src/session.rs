//! The watched process, and the changes that this viewer made to it.

mod before_reset;

use std::collections::HashMap;

use anyhow::{Result, bail};

pub use self::before_reset::BeforeReset;
use self::before_reset::Undone;
use crate::snapshot::{Point, PointState, Snapshot};
use crate::source::{Acted, Change, ChangeAnswer, Refusal, Source};

/// A source that remembers the points toggled through it. Dropping it restores them, however the
/// viewer ends.
pub struct Session {
    /// The source, for everything but snapshots and changes, which go through the session.
    pub source: Box<dyn Source>,
    keep: bool,
    toggled: HashMap<u32, Toggled>,
    /// Domains that were switched off completely, each with the greatest id of its points so far. A
    /// point with a greater id is new.
    off: HashMap<String, u32>,
    undone: Undone,
    /// The answers to requested changes that [`Self::answers`] has not returned yet.
    answers: Vec<ChangeAnswer>,
    /// Number of requested changes without an answer.
    requested: usize,
}

/// A point that the viewer toggled.
#[derive(Clone, Copy)]
struct Toggled {
    /// The state to restore.
    found: PointState,
    /// Whether the source returned `found`. Otherwise it is the state at a poll.
    is_certain: bool,
    /// The state that the viewer set.
    left: PointState,
}

impl Session {
    /// Watches a source. With `keep`, toggled points stay toggled at the end.
    pub fn new(source: Box<dyn Source>, keep: bool) -> Self {
        let (toggled, off, undone) = (HashMap::new(), HashMap::new(), Undone::default());
        Self { source, keep, toggled, off, undone, answers: Vec::new(), requested: 0 }
    }

    /// The next snapshot.
    pub fn poll(&mut self) -> Result<Snapshot> {
        // With a change on its way, the picture may be older than the change.
        let is_older = self.requested > 0;
        let polled = self.source.poll();
        self.hear();
        let mut snapshot = polled?;
        if !is_older {
            self.switch_new_names(&mut snapshot);
        }
        self.undone.add_to(&mut snapshot);
        Ok(snapshot)
    }

    /// Undoes a reset of points: adds their figures from before to all later snapshots of this
    /// session.
    ///
    /// # Errors
    ///
    /// The source cannot be polled, or its figures are still those from before the reset.
    pub fn bring_back(&mut self, all: &[BeforeReset]) -> Result<()> {
        let now = self.poll()?;
        if !all.iter().all(|figures| figures.is_over(&now)) {
            bail!("the reset is on its way; try again in a moment");
        }
        all.iter().for_each(|figures| self.undone.bring_back(figures.clone()));
        Ok(())
    }

    /// Call this after switching off the points `switched`. If a domain of these points has no
    /// point left that is on, the domain is kept off: its new points are switched off as they
    /// appear, until one of the domain's earlier points is on again.
    pub fn keep_off<'a>(&mut self, switched: &[u32], all: impl Iterator<Item = &'a Point> + Clone) {
        let is_switched = |point: &&Point| switched.contains(&point.id);
        for domain in all.clone().filter(is_switched).filter_map(Point::domain) {
            let its = all.clone().filter(|point| point.domain() == Some(domain));
            let is_off = |point: &Point| point.state != PointState::On || is_switched(&point);
            if its.clone().all(is_off) {
                let last = its.map(|point| point.id).max().unwrap_or(0);
                self.off.insert(domain.to_owned(), last);
            }
        }
    }

    fn switch_new_names(&mut self, snapshot: &mut Snapshot) {
        if self.off.is_empty() {
            return;
        }
        let on = |point: &&mut Point| point.state == PointState::On;
        for point in snapshot.points.iter().filter(|point| point.state == PointState::On) {
            // Another viewer or the program has switched a point of the domain on.
            self.off.retain(|domain, last| point.domain() != Some(domain) || point.id > *last);
        }
        for point in snapshot.points.iter_mut().filter(on) {
            if point.domain().is_some_and(|domain| self.off.contains_key(domain))
                && self.switch(point.id, point.state, false).is_ok()
            {
                point.state = PointState::Off;
            }
        }
        for point in &snapshot.points {
            if let Some(last) = point.domain().and_then(|domain| self.off.get_mut(domain)) {
                *last = point.id.max(*last);
            }
        }
    }

    /// The next snapshot. If the process has died and its segment cannot be read, returns `last`,
    /// marked as dead.
    pub fn poll_after(&mut self, last: Option<&Snapshot>) -> Result<Snapshot> {
        self.poll().or_else(|error| {
            let mut last = last.filter(|_| self.source.has_died()).cloned().ok_or(error)?;
            last.process.died(self.source.end());
            Ok(last)
        })
    }

    /// Forgets the toggled points, so that they keep their present states.
    pub fn leave_as_is(&mut self) {
        self.toggled.clear();
        self.off.clear();
    }

    /// Switches a point on or off. `shown` is its state at the last poll; another viewer may have
    /// switched it since.
    pub fn switch(&mut self, id: u32, shown: PointState, on: bool) -> Result<Acted> {
        let (change, left) = match on {
            false => (Change::Disable(id), PointState::Off),
            true => (Change::Enable(id), PointState::On),
        };
        let done = self.act(change);
        let certain = match &done {
            Ok(Acted::Made(found)) => *found,
            Ok(Acted::Requested) => None,
            Err(error) if Refusal::is_partly(error) => None,
            Err(_) => return done,
        };
        let found =
            Toggled { found: certain.unwrap_or(shown), is_certain: certain.is_some(), left };
        let toggled = self.toggled.entry(id).or_insert(found);
        toggled.left = left;
        let found = toggled.found;
        done.map(|acted| match acted {
            Acted::Made(_) => Acted::Made(Some(found)),
            Acted::Requested => Acted::Requested,
        })
    }

    /// The answers to changes that this session has requested. Never waits.
    pub fn answers(&mut self) -> Vec<ChangeAnswer> {
        self.hear();
        std::mem::take(&mut self.answers)
    }

    fn hear(&mut self) {
        for answer in self.source.answers() {
            self.requested = self.requested.saturating_sub(1);
            self.settle(&answer);
            self.answers.push(answer);
        }
    }

    /// Remembers the result of a requested change.
    fn settle(&mut self, ChangeAnswer { change, result }: &ChangeAnswer) {
        let is_refused = result.as_ref().err().is_some_and(|error| !Refusal::is_partly(error));
        let before = match change {
            Change::Enable(_) => PointState::Off,
            Change::Disable(_) => PointState::On,
            Change::Reset(id) if !is_refused => return self.undone.forget(*id),
            Change::Reset(_)
            | Change::SetAlpha(..)
            | Change::SetFlag(..)
            | Change::SetLimit(..) => return,
        };
        let Some(toggled) = self.toggled.get_mut(&change.point()) else { return };
        if is_refused {
            toggled.left = before;
        } else if let Ok(Some(found)) = result
            && !toggled.is_certain
        {
            (toggled.found, toggled.is_certain) = (*found, true);
        }
    }

    /// Whether the point was on before this session switched it off.
    pub fn switched_off(&self, id: u32) -> bool {
        let toggled = self.toggled.get(&id);
        toggled.is_some_and(|it| it.found == PointState::On && it.left == PointState::Off)
    }

    /// Makes a change that stays when the viewer leaves. Changes by [`Self::switch`] are undone.
    pub fn act(&mut self, change: Change) -> Result<Acted> {
        if let Some(why) = self.source.read_only() {
            bail!("{why}");
        }
        let done = self.source.act(change);
        self.requested += usize::from(matches!(done, Ok(Acted::Requested)));
        if let Change::Reset(id) = change
            && !matches!(done, Ok(Acted::Requested))
            && done.as_ref().err().is_none_or(Refusal::is_partly)
        {
            self.undone.forget(id);
        }
        done
    }

    /// Restores toggled points now, unless the session was made with `keep`.
    pub fn restore(&mut self) {
        if !self.keep && !self.toggled.is_empty() {
            // The process may be gone. The viewer is ending, so it cannot show the error.
            let _ = self.put_back();
        }
    }

    fn put_back(&mut self) -> Result<()> {
        let now = self.source.poll_now()?;
        let mut failed = Ok(());
        for (id, toggled) in self.toggled.drain() {
            let state = now.point(id).map(|point| point.state);
            // Another viewer or the program has changed the point since, so leave it alone.
            if state != Some(toggled.left) {
                continue;
            }
            let done = match (toggled.found, toggled.left) {
                (PointState::On, PointState::Off) => self.source.act(Change::Enable(id)).map(drop),
                // An invalid point did not measure before either.
                (PointState::Off | PointState::InvalidBeginBegin, PointState::On) => {
                    self.source.act(Change::Disable(id)).map(drop)
                }
                _ => Ok(()),
            };
            // Restore the other points even if this one fails.
            failed = failed.and(done);
        }
        failed
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.restore();
    }
}

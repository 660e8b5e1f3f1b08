//! The watched process, and the changes that this viewer made to it.

mod before_reset;

use std::collections::HashMap;

use anyhow::{Result, bail};

pub use self::before_reset::BeforeReset;
use self::before_reset::Undone;
use crate::snapshot::{Point, PointState, Snapshot};
use crate::source::{Change, Refusal, Source};

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
}

/// A point that the viewer toggled.
#[derive(Clone, Copy)]
pub struct Toggled {
    /// The state to restore.
    pub found: PointState,
    /// The state that the viewer set.
    pub left: PointState,
}

impl Session {
    /// Watches a source. With `keep`, toggled points stay toggled at the end.
    pub fn new(source: Box<dyn Source>, keep: bool) -> Self {
        let (toggled, off, undone) = (HashMap::new(), HashMap::new(), Undone::default());
        Self { source, keep, toggled, off, undone }
    }

    /// The next snapshot.
    pub fn poll(&mut self) -> Result<Snapshot> {
        let mut snapshot = self.source.poll()?;
        self.switch_new_names(&mut snapshot);
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
                && let Ok(toggled) = self.switch(point.id, point.state, false)
            {
                point.state = toggled.left;
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

    /// The snapshot with its records, for a file.
    pub fn whole(&mut self, snapshot: &Snapshot) -> Snapshot {
        let mut whole = snapshot.clone();
        self.source.add_all_records(&mut whole);
        whole
    }

    /// Forgets the toggled points, so that they keep their present states.
    pub fn leave_as_is(&mut self) {
        self.toggled.clear();
        self.off.clear();
    }

    /// Switches a point on or off. `shown` is its state at the last poll; another viewer may have
    /// switched it since.
    pub fn switch(&mut self, id: u32, shown: PointState, on: bool) -> Result<Toggled> {
        let (change, left) = match on {
            false => (Change::Disable(id), PointState::Off),
            true => (Change::Enable(id), PointState::On),
        };
        let done = self.act(change);
        let found = match &done {
            Ok(found) => found.unwrap_or(shown),
            Err(error) if Refusal::is_partly(error) => shown,
            Err(_) => return done.map(|_| Toggled { found: shown, left }),
        };
        let toggled = self.toggled.entry(id).or_insert(Toggled { found, left });
        toggled.left = left;
        let toggled = *toggled;
        done.map(|_| toggled)
    }

    /// Whether the point was on before this session switched it off.
    pub fn switched_off(&self, id: u32) -> bool {
        let toggled = self.toggled.get(&id);
        toggled.is_some_and(|it| it.found == PointState::On && it.left == PointState::Off)
    }

    /// Makes a change that stays when the viewer leaves. Changes by [`Self::switch`] are undone.
    pub fn act(&mut self, change: Change) -> Result<Option<PointState>> {
        match self.source.read_only() {
            Some(why) => bail!("{why}"),
            None => {
                let done = self.source.act(change);
                if let Change::Reset(id) = change
                    && done.as_ref().err().is_none_or(Refusal::is_partly)
                {
                    self.undone.forget(id);
                }
                done
            }
        }
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

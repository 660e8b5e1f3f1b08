//! Several processes as one source: their points side by side, each with its
//! process, or summed by name.
//!
//! ```text
//!  worker[7]  parse 64, lane 0 \            parse 0 of worker[7], lane 0
//!  worker[9]  parse 64, lane 0  -> group -> parse 1 of worker[9], lane 1
//!                                 or, summed: parse 0, lanes 0 and 1
//! ```
//!
//! Points and lanes get new ids, which never change. A matching process that appears later joins
//! the group. The rows of an ended process stay, with its last figures. Only an open group, as with
//! `--all`, removes an ended process: a minute after a clean exit or, if the process died, once
//! three other processes have died after it. Nothing is removed once no process of the group runs.
//! A sum never removes processes; an open sum folds the oldest of many ended processes into one.

mod change;
pub(super) mod files;
mod fold;
mod kept;
mod merge;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};

use change::GroupChange;
use pfp_read::local_time::unix_ns;
use pfp_read::snapshot::{Cell, Drained, ProcessState, SlowCall, Snapshot};
use pfp_read::source::{
    Acted, BadPlace, Candidate, Change, ChangeAnswer, Discovery, Finder, LineStatus, ProcessGroup,
    Refusal, Source,
};
use pfp_read::waits::{WaitNeeds, WaitsReport};

/// How long the rows of a process stay after it has exited cleanly.
const STAYS: Duration = Duration::from_secs(60);
const ENDED: &str = "the process has ended; nothing can be changed in it";
/// Maximum number of processes that died and whose rows stay.
const DEAD: usize = 3;
/// Maximum number of members whose waits are sampled.
const SAMPLED: usize = 16;

/// Several processes as one source.
pub(super) struct GroupSource {
    wanted: ProcessGroup,
    finder: Box<dyn Finder>,
    members: Vec<GroupMember>,
    /// Sources whose first picture is still to come, with their segment ids.
    coming: Vec<(String, Box<dyn Source>)>,
    /// The segment ids of ended processes that were folded into another.
    folded: HashSet<String>,
    /// Places that could not be reached at the last poll.
    bad: Vec<BadPlace>,
    /// Number of ids given to points so far, which is the next point's id.
    points: u32,
    /// The ids of points that are summed by name.
    ids: HashMap<PointKey, u32>,
    /// Number of ids given to lanes so far, which is the next lane's id.
    lanes: u32,
    /// By a point's id in the group: the index of each member that has the point, and the point's
    /// id in that member.
    routes: HashMap<u32, Vec<(usize, u32)>>,
    id: String,
    /// The segment id of the process whose clock is the group's clock, and the clock's rate, which
    /// is updated while that process runs.
    clock: Option<(String, f64)>,
    /// Start of the first of its processes, nanoseconds since the Unix epoch.
    started_unix_ns: u64,
    /// Moment of the last update of `elapsed_ticks`.
    counted: Option<Instant>,
    /// The group's age, in ticks of its clock.
    elapsed_ticks: u64,
    interval: Option<Duration>,
    /// What is needed of the waits.
    needs: WaitNeeds,
    /// The last merged report of waits, and the number of such reports.
    waits: Option<Arc<WaitsReport>>,
    reports: u64,
    /// Changes that some members have not answered yet, the oldest first.
    changes: Vec<GroupChange>,
}

/// The key that points of several processes share if they are summed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PointKey {
    /// Name and file, and a number if a process has several points with that name.
    Named(String, String, usize),
    /// The number of a point without a name.
    Numbered(u32),
}

struct GroupMember {
    segment_id: String,
    source: Box<dyn Source>,
    last: Snapshot,
    /// Number of processes: more than one if others were folded into this member.
    processes: usize,
    /// Moment at which the member was found to have ended.
    ended: Option<Instant>,
    /// Whether the source was dropped, so that `last` is all that is left of the process.
    is_kept: bool,
    /// The group's id of each of its points.
    points: HashMap<u32, u32>,
    /// Number of its points by name and file, for [`PointKey::Named`].
    names: HashMap<(String, String), usize>,
    /// The group's id of each of its lanes.
    lanes: HashMap<u32, u32>,
    /// The group's age when the member began, ticks. `None` before its first merge.
    began: Option<u64>,
    /// The report of waits that was merged last.
    waits: Option<Arc<WaitsReport>>,
    /// Each cell of the last picture, and its copy with the group's ids. As long as the cell is the
    /// same `Arc`, the merged snapshot gets the same copy, so that users of the merged snapshot see
    /// no change either.
    cells: HashMap<(u32, u32), [Arc<Cell>; 2]>,
    /// The same for the slow calls, by their numbers.
    slow: HashMap<u64, [Arc<SlowCall>; 2]>,
}

impl GroupMember {
    fn is_late(&self) -> bool {
        self.source.line().is_some_and(|line| line.late.is_some())
    }
}

impl GroupSource {
    /// A group of the processes that exist now.
    ///
    /// # Errors
    ///
    /// If no process matches. Without an interval, also if all matching processes are late.
    pub(super) fn new(
        wanted: ProcessGroup,
        finder: Box<dyn Finder>,
        interval: Option<Duration>,
    ) -> Result<Self> {
        let mut group = Self {
            wanted,
            finder,
            members: Vec::new(),
            coming: Vec::new(),
            folded: HashSet::new(),
            bad: Vec::new(),
            points: 0,
            ids: HashMap::new(),
            lanes: 0,
            routes: HashMap::new(),
            id: format!("{:032x}", unix_ns(SystemTime::now())),
            clock: None,
            started_unix_ns: u64::MAX,
            counted: None,
            elapsed_ticks: 0,
            interval,
            needs: WaitNeeds::Nothing,
            waits: None,
            reports: 0,
            changes: Vec::new(),
        };
        let discovery = group.join()?;
        match (group.members.is_empty(), group.coming.len()) {
            (false, _) => Ok(group),
            (true, 0) => bail!(Refusal::NoTarget(discovery.nothing_found())),
            // A screen waits for the first picture as it waits for any other.
            (true, _) if interval.is_some() => Ok(group),
            (true, late) => bail!(
                "expected figures, found {late} processes whose places are late; try again, or \
                 leave those places out"
            ),
        }
    }

    /// Adds processes that have appeared.
    fn join(&mut self) -> Result<Discovery> {
        let discovery = self.finder.discover()?;
        let known = |c: &Candidate| {
            let of_members = self.members.iter().map(|member| &member.segment_id);
            let mut all = of_members.chain(self.coming.iter().map(|(id, _)| id));
            all.any(|id| *id == c.segment_id) || self.folded.contains(&c.segment_id)
        };
        let (admitted, others): (Vec<&Candidate>, Vec<&Candidate>) = discovery
            .candidates
            .iter()
            .filter(|c| !known(c))
            .partition(|c| self.wanted.admits(c, &discovery.candidates));
        let mut new: Vec<Candidate> = admitted.into_iter().cloned().collect();
        for candidate in others.into_iter().filter(|candidate| candidate.awaited) {
            self.finder.let_go(&candidate.segment_id);
        }
        new.sort_by_key(|candidate| (candidate.started_unix_ns, candidate.pid));
        for candidate in new {
            // If a process has ended since the search, skip it and keep the others.
            let Ok(mut source) = self.finder.attach(&candidate) else { continue };
            source.set_interval(self.interval);
            self.coming.push((candidate.segment_id, source));
        }
        for (segment_id, mut source) in std::mem::take(&mut self.coming) {
            let last = match source.poll() {
                Ok(last) => last,
                Err(_) if source.is_coming() => {
                    self.coming.push((segment_id, source));
                    continue;
                }
                Err(_) => continue,
            };
            self.members.push(GroupMember {
                segment_id,
                source,
                last,
                processes: 1,
                ended: None,
                is_kept: false,
                points: HashMap::new(),
                names: HashMap::new(),
                lanes: HashMap::new(),
                began: None,
                waits: None,
                cells: HashMap::new(),
                slow: HashMap::new(),
            });
        }
        self.bad = self.finder.bad_places();
        Ok(discovery)
    }

    /// Replaces the sources of processes that have died by their last pictures, and lets the finder
    /// remove their segments. Otherwise, memory and descriptors would run out if many processes
    /// come and go.
    fn keep_last(&mut self) {
        let is_to_keep = |m: &&mut GroupMember| !m.is_kept && m.source.has_died();
        for member in self.members.iter_mut().filter(is_to_keep) {
            member.source.add_records(&mut member.last);
            member.keep(self.wanted.sum);
            self.finder.let_go(&member.segment_id);
        }
    }

    /// Removes members that ended long enough ago: see the head of this file.
    fn leave(&mut self, now: Instant) {
        let state = |member: &GroupMember| member.last.process.state;
        for member in self.members.iter_mut().filter(|m| state(m) != ProcessState::Running) {
            member.ended.get_or_insert(now);
        }
        let some_run = self.members.iter().any(|m| state(m) == ProcessState::Running);
        if !self.wanted.is_open() || self.wanted.sum || !some_run {
            return;
        }
        let is_kept = |state| matches!(state, ProcessState::Crashed | ProcessState::Ended);
        let died = |m: &GroupMember| is_kept(state(m)).then_some(m.ended).flatten();
        let mut deaths: Vec<Instant> = self.members.iter().filter_map(died).collect();
        deaths.sort();
        let since = deaths.len().checked_sub(DEAD).map(|place| deaths[place]);
        self.members.retain(|member| match (state(member), member.ended) {
            (ProcessState::Running, _) | (_, None) => true,
            (ProcessState::Exited, Some(ended)) => now.duration_since(ended) < STAYS,
            (ProcessState::Crashed | ProcessState::Ended, Some(ended)) => {
                since.is_none_or(|since| ended >= since)
            }
        });
    }
}

impl Source for GroupSource {
    fn set_interval(&mut self, within: Option<Duration>) {
        self.interval = within;
        let coming = self.coming.iter_mut().map(|(_, source)| source);
        let members = self.members.iter_mut().map(|member| &mut member.source);
        coming.chain(members).for_each(|source| source.set_interval(within));
    }

    fn prepare(&mut self) {
        let coming = self.coming.iter_mut().map(|(_, source)| source);
        let members = self.members.iter_mut().map(|member| &mut member.source);
        coming.chain(members).for_each(|source| source.prepare());
    }

    fn awaits(&mut self) -> bool {
        // The first figures are shown as soon as one place has sent its own.
        let is_first = self.is_coming();
        let mut coming = self.coming.iter_mut();
        is_first && coming.all(|(_, source)| source.awaits())
            || self.members.iter_mut().any(|member| member.source.awaits())
    }

    fn is_coming(&self) -> bool {
        self.members.is_empty() && !self.coming.is_empty()
    }

    fn need_waits(&mut self, needs: WaitNeeds) {
        self.needs = needs;
        let is_sampled = |member: &&mut GroupMember| {
            !member.is_kept && member.last.process.state == ProcessState::Running
        };
        // Each process is sampled in a thread, so their number is limited.
        for member in self.members.iter_mut().filter(is_sampled).take(SAMPLED) {
            member.source.need_waits(needs);
        }
    }

    fn picture(&mut self) -> Result<Snapshot> {
        self.keep_last();
        self.prepare();
        for member in self.members.iter_mut().filter(|member| !member.is_kept) {
            // A process that cannot be read now keeps its figures, as if it had ended.
            match member.source.poll() {
                Ok(snapshot) => member.last = snapshot,
                Err(_) if member.source.has_died() => {
                    member.last.process.died(member.source.end());
                }
                Err(_) => {}
            }
        }
        self.leave(Instant::now());
        self.fold_ended();
        // `join` polls the members that it adds.
        self.join()?;
        if self.is_coming() {
            bail!("expected figures, found silence from {} processes", self.coming.len());
        }
        if self.members.is_empty() {
            bail!(Refusal::NoTarget("the processes have ended, or refused to be watched".into()));
        }
        // Members may have joined, or made room for others.
        self.need_waits(self.needs);
        Ok(self.merge())
    }

    fn line(&self) -> Option<LineStatus> {
        let lines = self.members.iter().filter(|member| !member.is_kept);
        let lines: Vec<LineStatus> = lines.filter_map(|member| member.source.line()).collect();
        let mut places: Vec<&str> = lines.iter().map(|line| line.via.as_str()).collect();
        places.sort_unstable();
        places.dedup();
        let via = match places[..] {
            [] => return None,
            [one] => one.to_owned(),
            [..] => format!("{} places", places.len()),
        };
        let age = lines.iter().map(|line| line.age).max().unwrap_or_default();
        let late = lines.iter().max_by_key(|line| line.late).filter(|line| line.late.is_some());
        let line = late.cloned().unwrap_or(LineStatus { via, late: None, why: None, age });
        Some(LineStatus { age, ..line })
    }

    fn bad_places(&self) -> Vec<BadPlace> {
        self.bad.clone()
    }

    fn add_records(&mut self, snapshot: &mut Snapshot) {
        snapshot.records.clear();
        for member in &mut self.members {
            let mut own = member.last.clone();
            member.source.add_records(&mut own);
            let began = member.began.unwrap_or_default();
            snapshot.records.extend(own.records.into_iter().filter_map(|mut record| {
                record.point = *member.points.get(&record.point)?;
                record.lane = *member.lanes.get(&record.lane)?;
                record.start = record.start.saturating_add(began);
                Some(record)
            }));
        }
    }

    fn awaits_records(&self, _: &Snapshot) -> bool {
        self.members.iter().any(|member| member.source.awaits_records(&member.last))
    }

    fn new_records(&mut self, _: &Snapshot, from: &dyn Fn(u32) -> u64) -> Vec<Drained> {
        let mut all = Vec::new();
        for member in &mut self.members {
            let (points, lanes) = (&member.points, &member.lanes);
            let from = |lane: u32| lanes.get(&lane).map_or(0, |ours| from(*ours));
            let began = member.began.unwrap_or_default();
            for mut drained in member.source.new_records(&member.last, &from) {
                let Some(&lane) = lanes.get(&drained.lane) else { continue };
                drained.lane = lane;
                for record in &mut drained.records {
                    record.lane = lane;
                    // A record of an unknown point, as from a damaged ring, gets an id that no
                    // point has.
                    record.point = points.get(&record.point).copied().unwrap_or(u32::MAX);
                    record.start = record.start.saturating_add(began);
                }
                all.push(drained);
            }
        }
        all.sort_by_key(|drained| drained.lane);
        all
    }

    fn act(&mut self, change: Change) -> Result<Acted> {
        let mut own = change;
        let routes = self.routes.get(point_of(&mut own)).cloned().unwrap_or_default();
        let mut made = GroupChange::new(change);
        for (place, id) in routes {
            let member = &mut self.members[place];
            // In a sum, ended members are skipped, since they cannot be changed.
            if member.last.process.state != ProcessState::Running {
                made.is_over = true;
                continue;
            }
            *point_of(&mut own) = id;
            match member.source.act(own) {
                Ok(Acted::Made(before)) => made.add(&member.last.process, Ok(before)),
                Ok(Acted::Requested) => made.requested.push((member.segment_id.clone(), own)),
                Err(error) => made.add(&member.last.process, Err(error)),
            }
        }
        if made.requested.is_empty() {
            return made.result().map(Acted::Made);
        }
        self.changes.push(made);
        Ok(Acted::Requested)
    }

    fn answers(&mut self) -> Vec<ChangeAnswer> {
        for member in &mut self.members {
            for ChangeAnswer { change, result } in member.source.answers() {
                let asked = (member.segment_id.clone(), change);
                if let Some(made) = self.changes.iter_mut().find(|made| made.awaits(&asked)) {
                    made.requested.retain(|requested| *requested != asked);
                    made.add(&member.last.process, result);
                }
            }
        }
        // No answer comes from a member that has left, or whose source was dropped.
        let members = self.members.iter().filter(|member| !member.is_kept);
        let there: HashSet<&str> = members.map(|member| member.segment_id.as_str()).collect();
        for made in &mut self.changes {
            let before = made.requested.len();
            made.requested.retain(|(id, _)| there.contains(id.as_str()));
            made.is_over |= made.requested.len() < before;
        }
        let answered = self.changes.extract_if(.., |made| made.requested.is_empty());
        answered.map(|made| ChangeAnswer { change: made.change, result: made.result() }).collect()
    }
}

/// The id of the point that the change is about.
fn point_of(change: &mut Change) -> &mut u32 {
    let (Change::Enable(id)
    | Change::Disable(id)
    | Change::Reset(id)
    | Change::SetAlpha(id, _)
    | Change::SetFlag(id, ..)
    | Change::SetLimit(id, _)) = change;
    id
}

//! The served processes. They may come and go, and are polled on demand.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;

use super::negotiate::Negotiated;
use crate::{Begin, Subject};
use pfp_model::filter::Filter;
use pfp_model::{Figures, Lifetime, Model, TAU_SECONDS};
use pfp_read::snapshot::{ProcessState, Snapshot};
use pfp_read::source::{Candidate, Discovery, Finder, ProcessGroup, Source};
use pfp_read::text::warn;
use pfp_read::waits::WaitNeeds;

/// How long an ended process is still served, so that every scraper gets its last figures.
pub const STAYS: Duration = Duration::from_secs(60);
/// Maximum number of processes served at once.
const PROCESSES: usize = 256;
/// The clock of a process younger than this is still being calibrated.
const SETTLED_SECONDS: f64 = 1.0;
/// If a new rate differs from the old one by less than this share, the rate of the same clock was
/// refined. Otherwise the process has another clock.
const SAME_RATE: f64 = 0.01;
/// Maximum number of names that a lane has in labels. Each name is another series in a database,
/// and some programs give every thread a new number in its name.
const NAMES: usize = 4;

/// The processes to serve, and the form of their figures.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The processes to serve.
    pub group: ProcessGroup,
    /// The shortest time between two polls.
    pub interval: Duration,
    /// Number of lanes whose threads are exported one by one. `None` to export points only.
    pub lanes_apart: Option<u32>,
    /// The filter for the points of these processes.
    pub filter: Filter,
    /// Whether to export histograms.
    pub histograms: bool,
    /// Whether to sample what threads wait for.
    pub waits: bool,
    /// How long an ended process stays.
    pub stays: Duration,
}

/// The processes, and their figures of the last poll.
pub struct Pool {
    scope: Scope,
    finder: Box<dyn Finder>,
    members: Vec<PoolMember>,
    polled: Option<Instant>,
    /// Bodies of answers since the last poll.
    bodies: HashMap<Negotiated, Bytes>,
    /// Whether the message about too many processes was printed.
    full: bool,
    /// The error of the last search for processes, if it failed. An error is reported only once.
    said: Option<String>,
}

struct PoolMember {
    candidate: Candidate,
    source: Box<dyn Source>,
    lifetime: Lifetime,
    model: Model,
    /// Ticks per second of the process's clock, as exported. `None` while the clock is being
    /// calibrated.
    rate: Option<f64>,
    overhead_pair: u64,
    /// See [`Begin::watched_unix_ns`].
    watched_unix_ns: Option<u64>,
    /// See [`Begin::rebased`].
    rebased: bool,
    /// Names that each lane has had.
    names: HashMap<u32, Vec<String>>,
    ended: Option<Instant>,
    /// Whether the connection to the process delivers no new figures.
    is_late: bool,
}

impl Pool {
    /// A pool of the processes that this finder finds now, and the result of the search.
    ///
    /// # Errors
    ///
    /// If no place can be searched.
    pub fn new(scope: Scope, finder: Box<dyn Finder>) -> Result<(Self, Discovery)> {
        let mut pool = Self {
            scope,
            finder,
            members: Vec::new(),
            polled: None,
            bodies: HashMap::new(),
            full: false,
            said: None,
        };
        let discovery = pool.join()?;
        Ok((pool, discovery))
    }

    /// Number of served processes.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether no process is served.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The figures of all processes in the negotiated form, no older than the interval.
    pub fn body(&mut self, negotiated: Negotiated) -> Result<Bytes> {
        self.poll()?;
        if let Some(body) = self.bodies.get(&negotiated) {
            return Ok(body.clone());
        }
        let mut bytes = Vec::new();
        let mut places: BTreeMap<_, _> =
            self.finder.places().into_iter().map(|name| (name, true)).collect();
        places.extend(self.finder.bad_places().into_iter().map(|place| (place.name, false)));
        negotiated.form.write(&self.subjects().iter().collect::<Vec<_>>(), places, &mut bytes)?;
        if negotiated.gzip {
            bytes = packed(&bytes)?;
        }
        let body = Bytes::from(bytes);
        self.bodies.insert(negotiated, body.clone());
        Ok(body)
    }

    /// The subjects to export, after a [`Pool::poll`].
    pub fn subjects(&self) -> Vec<Subject<'_>> {
        // Leave late processes out: figures that do not change would look like an idle process.
        let is_exported = |member: &&PoolMember| member.rate.is_some() && !member.is_late;
        let settled = self.members.iter().filter(is_exported);
        let subjects = settled.filter_map(|member| {
            let per_thread = self.scope.lanes_apart.is_some();
            let passes = |figures: &Figures| self.scope.filter.admits(figures);
            let mut subject = Subject::new(&member.model, passes, per_thread)?;
            subject.histograms = self.scope.histograms;
            subject.lanes_apart = self.scope.lanes_apart.unwrap_or(u32::MAX);
            subject.begin = Begin {
                watched_unix_ns: member.watched_unix_ns.unwrap_or_default(),
                rebased: member.rebased,
                ..subject.begin
            };
            Some(subject)
        });
        subjects.collect()
    }

    /// Polls the processes, unless the last poll is more recent than the interval.
    pub fn poll(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.polled.is_some_and(|then| now.duration_since(then) < self.scope.interval) {
            return Ok(());
        }
        // Poll even if the search has failed because a connection is lost: the poll marks the
        // processes at its other end as late.
        let trouble = self.join().err();
        self.members.iter_mut().for_each(|member| member.source.prepare());
        for member in &mut self.members {
            member.poll(now);
        }
        let said = trouble.as_ref().map(|error| format!("{error:#}"));
        match trouble {
            Some(error) if self.members.is_empty() => return Err(error),
            Some(error) if self.said != said => warn(&format!("{error:#}")),
            _ => {}
        }
        self.said = said;
        let stays = self.scope.stays;
        self.members
            .retain(|member| member.ended.is_none_or(|ended| now.duration_since(ended) < stays));
        self.polled = Some(now);
        self.bodies.clear();
        Ok(())
    }

    /// Whether all processes have ended.
    pub fn has_ended(&self) -> bool {
        self.members.iter().all(|member| member.ended.is_some())
    }

    /// Drops ended processes, after their last figures have been sent. Late processes stay:
    /// [`Self::subjects`] left them out, so their last figures were not sent.
    pub fn forget_ended(&mut self) {
        self.members.retain(|member| member.ended.is_none() || member.is_late);
        self.bodies.clear();
    }

    /// Adds new processes.
    fn join(&mut self) -> Result<Discovery> {
        let discovery = self.finder.discover()?;
        let known =
            |c: &Candidate| self.members.iter().any(|m| m.candidate.segment_id == c.segment_id);
        let all = &discovery.candidates;
        let mut new: Vec<Candidate> = all
            .iter()
            // Skip processes that had ended when they were first found: their figures never change.
            .filter(|c| c.runs() && self.scope.group.admits(c, all) && !known(c))
            .cloned()
            .collect();
        new.sort_by_key(|candidate| (candidate.started_unix_ns, candidate.pid));
        for candidate in new {
            // After `exec`, another program runs under the same id. The old process stays until its
            // last figures are sent.
            let is_same = |it: &Candidate| {
                (&it.place, it.visible_pid()) == (&candidate.place, candidate.visible_pid())
            };
            let stays = self.scope.stays == Duration::MAX;
            self.members
                .retain(|member| stays || member.ended.is_none() || !is_same(&member.candidate));
            if self.members.len() == PROCESSES {
                // Drop the process that ended first to make room.
                let ended = self.members.iter().filter(|member| member.ended.is_some());
                let oldest = ended.min_by_key(|member| member.ended);
                let oldest = oldest.map(|member| member.candidate.segment_id.clone());
                self.members.retain(|m| oldest.as_ref() != Some(&m.candidate.segment_id));
            }
            if self.members.len() == PROCESSES {
                if !self.full {
                    warn(&format!(
                        "expected no more than {PROCESSES} processes, found another one, {} [{}]: \
                         it is not served; choose with --name",
                        candidate.name, candidate.pid
                    ));
                }
                self.full = true;
                break;
            }
            // If a process has ended since the search, skip it and keep the others.
            let Ok(source) = self.finder.attach(&candidate) else { continue };
            let mut member = PoolMember::new(candidate, source);
            if self.scope.waits {
                member.source.need_waits(WaitNeeds::Summary);
            }
            self.members.push(member);
        }
        Ok(discovery)
    }
}

/// Compresses bytes with gzip.
pub(crate) fn packed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes)?;
    packed.finish()
}

impl PoolMember {
    fn new(candidate: Candidate, source: Box<dyn Source>) -> Self {
        Self {
            candidate,
            source,
            lifetime: Lifetime::default(),
            model: Model::new(TAU_SECONDS),
            rate: None,
            overhead_pair: 0,
            watched_unix_ns: None,
            rebased: false,
            names: HashMap::new(),
            ended: None,
            is_late: false,
        }
    }

    fn poll(&mut self, now: Instant) {
        let polled = self.source.poll();
        self.is_late = self.source.line().is_some_and(|line| line.late.is_some());
        // A process that cannot be read now keeps its figures.
        let Ok(snapshot) = polled else {
            if self.source.has_died()
                && self.ended.is_none()
                && let Some(mut last) = self.model.snapshot().cloned()
            {
                self.ended = Some(now);
                last.process.died(self.source.end());
                self.model.fold(last);
            }
            return;
        };
        // While the connection is slow, a poll returns the previous snapshot again.
        let ended = snapshot.process.state != ProcessState::Running;
        let last = self.model.snapshot().map(|last| last.taken_unix_ns);
        let is_same = !ended && last == Some(snapshot.taken_unix_ns);
        self.is_late |= is_same && self.source.line().is_some();
        let mut snapshot = self.lifetime.extend(snapshot);
        if ended {
            self.ended.get_or_insert(now);
        }
        self.steady(&mut snapshot, ended);
        self.name_lanes(&mut snapshot);
        self.model.fold(snapshot);
    }

    /// Keeps one clock rate for a process, although the rate is refined while the process runs.
    /// With a new rate, sums could decrease by part of a second, and a decreasing sum looks like a
    /// restart.
    fn steady(&mut self, snapshot: &mut Snapshot, ended: bool) {
        let taken_unix_ns = snapshot.taken_unix_ns;
        self.watched_unix_ns.get_or_insert(taken_unix_ns);
        let clock = &mut snapshot.clock;
        let is_same = |rate: f64| (clock.ticks_per_second / rate - 1.0).abs() < SAME_RATE;
        match self.rate {
            Some(rate) if is_same(rate) => clock.ticks_per_second = rate,
            found => {
                if found.is_some() {
                    (self.watched_unix_ns, self.rebased) = (Some(taken_unix_ns), true);
                }
                let seconds = snapshot.elapsed_ticks as f64 / clock.ticks_per_second;
                let settled = ended || seconds >= SETTLED_SECONDS;
                self.rate = settled.then_some(clock.ticks_per_second);
            }
        }
        self.overhead_pair = self.overhead_pair.max(clock.overhead_pair);
        clock.overhead_pair = self.overhead_pair;
    }

    fn name_lanes(&mut self, snapshot: &mut Snapshot) {
        for lane in &mut snapshot.lanes {
            let names = self.names.entry(lane.id).or_default();
            if names.contains(&lane.name) {
                continue;
            }
            if names.len() < NAMES {
                names.push(lane.name.clone());
            } else {
                "(several)".clone_into(&mut lane.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use pfp_read::source::synthetic::{Synthetic, TICKS_PER_SECOND};
    use pfp_read::source::{LineStatus, Selector};

    fn member() -> PoolMember {
        PoolMember::new(Candidate::default(), Box::new(Synthetic::new()))
    }

    /// A process at the other end of a connection, and whether the connection is late.
    struct Far(Synthetic, Rc<Cell<bool>>);

    impl Source for Far {
        fn picture(&mut self) -> Result<Snapshot> {
            self.0.poll()
        }

        fn line(&self) -> Option<LineStatus> {
            let late = self.1.get().then_some(Duration::from_secs(6));
            Some(LineStatus {
                via: "ssh node1".into(),
                late,
                why: None,
                age: late.unwrap_or_default(),
            })
        }
    }

    fn scope(stays: Duration) -> Scope {
        Scope {
            group: ProcessGroup { members: Selector::All(String::new()), sum: false },
            interval: Duration::ZERO,
            lanes_apart: None,
            filter: Filter::default(),
            histograms: true,
            waits: false,
            stays,
        }
    }

    struct Both(Rc<Cell<bool>>);

    impl Finder for Both {
        fn discover(&mut self) -> Result<Discovery> {
            anyhow::ensure!(!self.0.get(), "the line is lost");
            let made = |pid: u32| Candidate {
                pid,
                segment_id: pid.to_string(),
                state: ProcessState::Running,
                ..Candidate::default()
            };
            Ok(Discovery { candidates: vec![made(7), made(9)], ..Discovery::default() })
        }

        fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
            let is_late = if candidate.pid == 9 { Rc::clone(&self.0) } else { Rc::default() };
            Ok(Box::new(Far(Synthetic::new(), is_late)))
        }
    }

    #[test]
    fn a_process_behind_a_late_line_is_left_out() {
        let is_late = Rc::new(Cell::new(false));
        let (mut pool, _) = Pool::new(scope(STAYS), Box::new(Both(Rc::clone(&is_late)))).unwrap();
        let mut exported_count = |late: bool| {
            is_late.set(late);
            pool.poll().unwrap();
            pool.subjects().len()
        };
        while exported_count(false) < 2 {}
        assert_eq!([true, true, false, true].map(exported_count), [1, 1, 2, 1]);
        assert_eq!(pool.len(), 2);
        // A process that ended while its connection was late is exported once more.
        pool.members.iter_mut().for_each(|member| member.ended = Some(Instant::now()));
        pool.forget_ended();
        assert_eq!(pool.members.iter().map(|member| member.candidate.pid).collect::<Vec<_>>(), [9]);
        is_late.set(false);
        pool.members[0].is_late = false;
        assert_eq!(pool.subjects().len(), 1);
        pool.forget_ended();
        assert!(pool.is_empty());
    }

    /// A process that becomes another program at each poll.
    struct Next(Cell<u32>);

    impl Finder for Next {
        fn discover(&mut self) -> Result<Discovery> {
            self.0.set(self.0.get() + 1);
            let candidate = Candidate {
                pid: 7,
                segment_id: self.0.get().to_string(),
                state: ProcessState::Running,
                ..Candidate::default()
            };
            Ok(Discovery { candidates: vec![candidate], ..Discovery::default() })
        }

        fn attach(&mut self, _: &Candidate) -> Result<Box<dyn Source>> {
            Ok(Box::new(Synthetic::new()))
        }
    }

    #[test]
    fn a_process_that_becomes_another_program_stays_until_its_figures_are_sent() {
        for (stays, left) in [(STAYS, 1), (Duration::MAX, 2)] {
            let (mut pool, _) = Pool::new(scope(stays), Box::new(Next(Cell::default()))).unwrap();
            pool.members[0].ended = Some(Instant::now());
            pool.poll().unwrap();
            assert_eq!(pool.len(), left);
        }
    }

    /// A running process with id 7, at another place at each poll.
    struct Elsewhere(u32);

    impl Finder for Elsewhere {
        fn discover(&mut self) -> Result<Discovery> {
            self.0 += 1;
            let candidate = Candidate {
                pid: 7,
                segment_id: self.0.to_string(),
                state: ProcessState::Running,
                place: Some(format!("node{}", self.0)),
                ..Candidate::default()
            };
            Ok(Discovery { candidates: vec![candidate], ..Discovery::default() })
        }

        fn attach(&mut self, _: &Candidate) -> Result<Box<dyn Source>> {
            Ok(Box::new(Synthetic::new()))
        }
    }

    #[test]
    fn a_process_that_has_ended_stays_beside_one_with_its_id_at_another_place() {
        let (mut pool, _) = Pool::new(scope(STAYS), Box::new(Elsewhere(0))).unwrap();
        for number in 2..5 {
            pool.members.iter_mut().for_each(|member| member.ended = Some(Instant::now()));
            pool.poll().unwrap();
            assert_eq!(pool.len(), number);
        }
        // A full pool drops the process that ended first, and keeps all others.
        let first = pool.members[0].candidate.segment_id.clone();
        while pool.len() < PROCESSES {
            pool.poll().unwrap();
        }
        for (number, member) in pool.members.iter_mut().enumerate() {
            member.ended = (number < 3).then(Instant::now);
        }
        pool.poll().unwrap();
        assert_eq!(pool.len(), PROCESSES);
        assert!(pool.members.iter().all(|member| member.candidate.segment_id != first));
    }

    #[test]
    fn sums_never_shrink_when_the_clock_is_refined() {
        let mut member = member();
        let refined = |factor: f64, pair: u64| {
            let mut snapshot = Synthetic::new().poll().unwrap();
            snapshot.clock.ticks_per_second *= factor;
            snapshot.clock.overhead_pair = pair;
            snapshot
        };
        let mut steadied = |mut snapshot: Snapshot| {
            member.steady(&mut snapshot, false);
            (
                snapshot.clock.ticks_per_second / TICKS_PER_SECOND as f64,
                snapshot.clock.overhead_pair,
            )
        };
        let mut young = refined(1.002, 60);
        young.elapsed_ticks = TICKS_PER_SECOND / 2;
        assert_eq!(steadied(young), (1.002, 60));
        assert_eq!(steadied(refined(1.001, 60)), (1.001, 60));
        assert_eq!(steadied(refined(1.002, 50)), (1.001, 60));
        assert_eq!(steadied(refined(1.0, 70)), (1.001, 70));
        assert_eq!(steadied(refined(2.0, 70)), (2.0, 70), "another clock");
    }

    #[test]
    fn numbered_threads_make_a_bounded_number_of_series() {
        let mut member = member();
        let mut labels = std::collections::BTreeSet::new();
        for number in 0..50 {
            let mut snapshot = Synthetic::new().poll().unwrap();
            snapshot.lanes[0].name = format!("worker-{number}");
            member.name_lanes(&mut snapshot);
            labels.insert(snapshot.lanes[0].name.clone());
            assert_eq!(snapshot.lanes[1].name, "reader");
        }
        assert_eq!(labels.len(), NAMES + 1);
    }
}

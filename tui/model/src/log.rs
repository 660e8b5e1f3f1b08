//! The log: events with their times, such as switches and who made them, losses, and the end of the
//! process.
//!
//! The log compares every snapshot with the previous one. This viewer's own changes are logged when
//! the viewer makes them; any other change was made by another viewer or the program.

mod member_events;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

pub use member_events::MemberEvent;

use crate::alpha;
use crate::headline::{self, clock_word};
use crate::left_over::LeftOver;
use pfp_read::snapshot::{ClockKind, Limit, Point, PointFlag, PointState, ProcessState, Snapshot};
use pfp_read::text::first_names;
use pfp_read::units;

/// Maximum number of entries.
const KEPT: usize = 1000;
/// An event that repeats within this time updates its entry instead of getting another one.
const SAME_NS: u64 = 60_000_000_000;
/// Minimum relative change of a clock's rate that is logged. A smaller one is only a better
/// calibration.
const RATE_CHANGE: f64 = 0.001;
/// Number of the newest entries that are searched for a repetition.
const SAME_AMONG: usize = 8;

/// How entries name the author of a change that this viewer made.
const THIS: &str = "by this viewer";
const OTHERS: &str = "by another viewer or the program";
/// The resolution of alpha in a segment.
const ALPHA_STEP: f64 = 1e-6;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Time of the event, nanoseconds since the Unix epoch. If the event was repeated, the time of
    /// the last repetition.
    pub unix_ns: u64,
    /// Whether the event needs attention.
    pub is_problem: bool,
    /// Description of the event.
    pub text: String,
    /// For losses: the kind, the time when it was first counted, and the count so far.
    loss: Option<(&'static str, u64, u64)>,
}

/// The entries, oldest first, and the state for finding further events.
#[derive(Debug, Default)]
pub struct EventLog {
    entries: VecDeque<LogEntry>,
    pushed: u64,
    unread: usize,
    /// The last snapshot.
    known: Option<Arc<Snapshot>>,
    /// Changes by this viewer that no snapshot has confirmed yet, by the point's id.
    own: HashMap<u32, Own>,
}

/// A change by this viewer. If the process is on another machine, the snapshot that confirms the
/// change may come late. Processes of several machines confirm a change one by one.
#[derive(Debug, Default)]
struct Own {
    state: Option<PointState>,
    resets: u32,
    alpha: Option<Option<f64>>,
    limit: Option<Option<Limit>>,
    flags: [Option<bool>; PointFlag::ALL.len()],
    until_unix_ns: u64,
}

/// Which of a point's changes this viewer made.
#[derive(Default)]
struct OwnChanges {
    state: bool,
    resets: bool,
    alpha: bool,
    limit: bool,
    flags: [bool; PointFlag::ALL.len()],
}

impl Own {
    /// Whether this viewer has set this state. Returns true only once per change.
    fn take_state(&mut self, state: PointState, unix_ns: u64) -> bool {
        self.state.take_if(|own| *own == state && unix_ns < self.until_unix_ns).is_some()
    }

    /// Whether this viewer has set this alpha, which segments store in steps of [`ALPHA_STEP`].
    /// Returns true only once per change.
    fn take_alpha(&mut self, alpha: Option<f64>, unix_ns: u64) -> bool {
        let is_same = |own: &mut Option<f64>| match (*own, alpha) {
            (Some(own), Some(alpha)) => (own - alpha).abs() <= ALPHA_STEP,
            (own, alpha) => own.is_none() && alpha.is_none(),
        };
        self.alpha.take_if(|own| is_same(own) && unix_ns < self.until_unix_ns).is_some()
    }

    /// Whether this viewer has set this limit. Returns true only once per change.
    fn take_limit(&mut self, limit: Option<Limit>, unix_ns: u64) -> bool {
        self.limit.take_if(|own| *own == limit && unix_ns < self.until_unix_ns).is_some()
    }

    /// Whether this viewer has set the flag to this value. Returns true only once per change.
    fn take_flag(&mut self, flag: PointFlag, on: bool, unix_ns: u64) -> bool {
        let own = &mut self.flags[flag as usize];
        own.take_if(|own| *own == on && unix_ns < self.until_unix_ns).is_some()
    }

    /// Whether this viewer made `resets` resets. In a sum, whose members report one by one, any
    /// number matches.
    fn take_resets(&mut self, resets: u32, is_sum: bool, unix_ns: u64) -> bool {
        if unix_ns >= self.until_unix_ns || self.resets == 0 {
            return false;
        }
        let own = resets.min(self.resets);
        self.resets -= if is_sum { 0 } else { own };
        is_sum || own == resets
    }
}

impl EventLog {
    /// The entries, oldest first.
    pub fn entries(&self) -> &VecDeque<LogEntry> {
        &self.entries
    }

    /// Number of entries that were ever added.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Number of problems since the log was last read.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// Marks all entries as read.
    pub fn read(&mut self) {
        self.unread = 0;
    }

    /// Adds an event that needs no attention. A repetition of the last event only updates its time.
    pub fn note(&mut self, unix_ns: u64, text: impl Into<String>) {
        self.say(unix_ns, false, text.into());
    }

    /// Adds an event that needs attention. A repetition of the last event only updates its time.
    pub fn problem(&mut self, unix_ns: u64, text: impl Into<String>) {
        self.say(unix_ns, true, text.into());
    }

    /// Adds an entry: this viewer switched a point. `but` names the processes that did not follow.
    pub fn toggled(
        &mut self,
        unix_ns: u64,
        id: u32,
        name: &str,
        state: PointState,
        but: Option<&str>,
    ) {
        self.own(unix_ns, id).state = Some(state);
        self.changed(unix_ns, format!("{name} switched {} {THIS}", word(state)), but);
    }

    /// Adds an entry: this viewer reset a point. `but` names the processes that did not follow.
    pub fn reset(&mut self, unix_ns: u64, id: u32, name: &str, but: Option<&str>) {
        self.own(unix_ns, id).resets += 1;
        self.changed(unix_ns, format!("{name} reset {THIS}"), but);
    }

    /// Adds an entry: this viewer undid its reset of a point. The next snapshot counts one more
    /// reset.
    pub fn brought_back(&mut self, unix_ns: u64, id: u32, name: &str) {
        self.own(unix_ns, id).resets += 1;
        self.note(unix_ns, format!("reset of {name} undone {THIS}"));
    }

    /// Adds an entry: this viewer set alpha of a point. `but` names the processes that did not
    /// follow.
    pub fn averaged(
        &mut self,
        unix_ns: u64,
        id: u32,
        name: &str,
        alpha: Option<f64>,
        but: Option<&str>,
    ) {
        self.own(unix_ns, id).alpha = Some(alpha);
        self.changed(unix_ns, averaged(name, alpha, THIS), but);
    }

    /// Adds an entry: this viewer set the time from which on calls of a point are kept. `but` names
    /// the processes that did not follow.
    pub fn limited(
        &mut self,
        unix_ns: u64,
        id: u32,
        name: &str,
        limit: Option<Limit>,
        but: Option<&str>,
    ) {
        self.own(unix_ns, id).limit = Some(limit);
        self.changed(unix_ns, limited(name, limit, THIS), but);
    }

    /// Adds an entry: this viewer set or cleared a flag of a point. `but` names the processes that
    /// did not follow.
    pub fn flagged(
        &mut self,
        unix_ns: u64,
        id: u32,
        name: &str,
        (flag, on): (PointFlag, bool),
        but: Option<&str>,
    ) {
        self.own(unix_ns, id).flags[flag as usize] = Some(on);
        self.changed(unix_ns, flag_set(name, (flag, on), THIS), but);
    }

    fn own(&mut self, unix_ns: u64, id: u32) -> &mut Own {
        let own = self.own.entry(id).or_default();
        own.until_unix_ns = unix_ns + SAME_NS;
        own
    }

    fn changed(&mut self, unix_ns: u64, text: String, but: Option<&str>) {
        match but {
            None => self.note(unix_ns, text),
            Some(why) => self.problem(unix_ns, format!("{text}, but {why}")),
        }
    }

    /// Compares a snapshot with the previous one. Returns messages about processes that came or
    /// went.
    pub fn observe(&mut self, unix_ns: u64, snapshot: &Arc<Snapshot>) -> Vec<MemberEvent> {
        let same = |known: &Arc<Snapshot>| known.process.segment_id == snapshot.process.segment_id;
        let events = match self.known.take().filter(same) {
            Some(known) => self.compare(unix_ns, &known, snapshot),
            None => self.report_start(unix_ns, snapshot),
        };
        self.known = Some(Arc::clone(snapshot));
        self.own.retain(|_, own| unix_ns < own.until_unix_ns);
        events
    }

    fn report_start(&mut self, unix_ns: u64, snapshot: &Snapshot) -> Vec<MemberEvent> {
        let process = headline::process(&snapshot.process);
        let points = snapshot.points.len();
        let clock = clock_word(snapshot.clock.kind);
        let plural = if points == 1 { "" } else { "s" };
        let text = format!("watching {process}: {points} point{plural}, clock {clock}");
        self.note(unix_ns, text);
        if snapshot.clock.kind == ClockKind::Wall {
            self.problem(
                unix_ns,
                "figures include time off the CPU: the process measures with the wall clock",
            );
        }
        for point in snapshot.points.iter().filter(|p| p.state == PointState::InvalidBeginBegin) {
            self.problem(unix_ns, invalid(snapshot, point));
        }
        for (kind, count) in snapshot.losses.lasting() {
            self.lose(unix_ns, kind.words(), count, count);
        }
        self.note_left_over(unix_ns, 0, snapshot);
        self.report_state(unix_ns, snapshot);
        // Processes that existed from the start are not reported as new.
        let mut found = snapshot.process.members.clone();
        found.iter_mut().for_each(|member| member.state = ProcessState::Running);
        self.add_events(unix_ns, member_events::of(&found, snapshot))
    }

    fn compare(&mut self, unix_ns: u64, known: &Snapshot, snapshot: &Snapshot) -> Vec<MemberEvent> {
        let events = member_events::of(&known.process.members, snapshot);
        let clock = &snapshot.clock;
        if clock.kind != known.clock.kind {
            let (from, to) = (clock_word(known.clock.kind), clock_word(clock.kind));
            self.problem(unix_ns, format!("the clock went from {from} to {to}"));
        } else if events.is_empty()
            && (clock.ticks_per_second / known.clock.ticks_per_second - 1.0).abs() > RATE_CHANGE
        {
            let rate = units::hertz(clock.ticks_per_second);
            self.note(unix_ns, format!("the clock was recalibrated: {rate}"));
        }
        let mut new = Vec::new();
        let mut old = known.points.iter().peekable();
        for point in &snapshot.points {
            while old.next_if(|old| old.id < point.id).is_some() {}
            match old.next_if(|old| old.id == point.id) {
                // A sum's state and number of resets change when a process joins or leaves.
                Some(_) if !events.is_empty() && point.process.is_none() => {}
                Some(old) => self.compare_point(unix_ns, old, snapshot, point),
                // Points of a process that has just joined are not reported as new.
                None if snapshot.member(point.process).is_some_and(|it| !known.knows(it)) => {}
                None => new.push(name_of(snapshot, point)),
            }
        }
        match &new[..] {
            [] => {}
            [one] => self.note(unix_ns, format!("a new point: {one}")),
            several => {
                let names = first_names(several);
                self.note(unix_ns, format!("{} new points: {names}", several.len()));
            }
        }
        self.note_left_over(unix_ns, left_over(known).map_or(0, |left| left.ids.len()), snapshot);
        for (kind, count) in snapshot.losses.lasting() {
            let before = known.losses[kind];
            if count > before {
                self.lose(unix_ns, kind.words(), count - before, count);
            }
        }
        if known.process.state != snapshot.process.state {
            self.report_state(unix_ns, snapshot);
        }
        self.add_events(unix_ns, events)
    }

    /// Adds entries for processes that came or went.
    fn add_events(&mut self, unix_ns: u64, events: Vec<MemberEvent>) -> Vec<MemberEvent> {
        for event in &events {
            self.say(unix_ns, event.is_problem, event.text.clone());
        }
        events
    }

    fn compare_point(&mut self, unix_ns: u64, old: &Point, snapshot: &Snapshot, point: &Point) {
        let name = name_of(snapshot, point);
        let is_sum = point.process.is_none() && !snapshot.process.members.is_empty();
        let own = self.own.get_mut(&point.id);
        let own = own.map_or(OwnChanges::default(), |own| {
            let resets = point.resets.wrapping_sub(old.resets);
            OwnChanges {
                state: old.state != point.state && own.take_state(point.state, unix_ns),
                resets: resets != 0 && own.take_resets(resets, is_sum, unix_ns),
                alpha: old.alpha != point.alpha && own.take_alpha(point.alpha, unix_ns),
                limit: old.limit != point.limit && own.take_limit(point.limit, unix_ns),
                flags: PointFlag::ALL.map(|flag| {
                    let on = point.has(flag);
                    old.has(flag) != on && own.take_flag(flag, on, unix_ns)
                }),
            }
        });
        if old.state != point.state && !own.state {
            match point.state {
                PointState::InvalidBeginBegin => self.problem(unix_ns, invalid(snapshot, point)),
                state => self.note(unix_ns, format!("{name} switched {} {OTHERS}", word(state))),
            }
        }
        if old.resets != point.resets && !own.resets {
            self.note(unix_ns, format!("{name} reset {OTHERS}"));
        }
        if old.alpha != point.alpha && !own.alpha {
            self.note(unix_ns, averaged(&name, point.alpha, OTHERS));
        }
        if old.limit != point.limit && !own.limit {
            self.note(unix_ns, limited(&name, point.limit, OTHERS));
        }
        for flag in PointFlag::ALL {
            let on = point.has(flag);
            if old.has(flag) != on && !own.flags[flag as usize] {
                self.note(unix_ns, flag_set(&name, (flag, on), OTHERS));
            }
        }
    }

    /// Adds an entry about points that killed viewers left switched, if there are more than before.
    fn note_left_over(&mut self, unix_ns: u64, before: usize, snapshot: &Snapshot) {
        if let Some(left) = left_over(snapshot).filter(|left| left.ids.len() > before) {
            self.note(unix_ns, left.text());
        }
    }

    fn report_state(&mut self, unix_ns: u64, snapshot: &Snapshot) {
        let name = snapshot.process.to_string();
        if !snapshot.process.members.is_empty() {
            // Each process is reported by itself.
            return;
        }
        let Some(how) = snapshot.process.ended() else { return };
        match snapshot.process.state {
            ProcessState::Crashed => self.problem(unix_ns, format!("{name} {how}")),
            _ => self.note(unix_ns, format!("{name} {how}")),
        }
    }

    /// Counts a loss; repeated losses share one entry per minute.
    fn lose(&mut self, unix_ns: u64, what: &'static str, more: u64, total: u64) {
        let newest = self.entries.iter().enumerate().rev().take(SAME_AMONG);
        let is_same = |entry: &LogEntry| {
            entry.loss.is_some_and(|(w, since, _)| w == what && unix_ns < since + SAME_NS)
        };
        let earlier = newest.filter(|(_, entry)| is_same(entry)).map(|(place, _)| place).next();
        let earlier = earlier.and_then(|place| self.entries.remove(place));
        let (since, so_far) = match earlier.as_ref().and_then(|entry| entry.loss) {
            Some((_, since, so_far)) => (since, so_far),
            None => (unix_ns, 0),
        };
        let more = so_far.saturating_add(more);
        let text = match more == total {
            true => format!("lost: {total} {what}"),
            false => format!("lost: {more} more {what}, {total} in all"),
        };
        let loss = Some((what, since, more));
        let entry = LogEntry { unix_ns, is_problem: true, text, loss };
        if earlier.is_some() {
            self.entries.push_back(entry);
        } else {
            self.push(entry);
        }
    }

    fn say(&mut self, unix_ns: u64, is_problem: bool, text: String) {
        match self.entries.back_mut() {
            // A failing poll fails again every time, so extend the last entry instead of adding
            // one.
            Some(last) if last.text == text && unix_ns < last.unix_ns + SAME_NS => {
                last.unix_ns = unix_ns;
                self.unread += usize::from(is_problem && !last.is_problem);
                last.is_problem |= is_problem;
            }
            _ => self.push(LogEntry { unix_ns, is_problem, text, loss: None }),
        }
    }

    fn push(&mut self, entry: LogEntry) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.unread += usize::from(entry.is_problem);
        self.pushed += 1;
        self.entries.push_back(entry);
    }
}

fn left_over(snapshot: &Snapshot) -> Option<LeftOver> {
    LeftOver::of(snapshot.points.iter())
}

fn word(state: PointState) -> &'static str {
    if state == PointState::On { "on" } else { "off" }
}

fn averaged(name: &str, alpha: Option<f64>, by: &str) -> String {
    match alpha {
        Some(alpha) => format!("alpha of {name} set to {} {by}", alpha::written(alpha)),
        None => format!("alpha of {name} set to off {by}"),
    }
}

fn limited(name: &str, limit: Option<Limit>, by: &str) -> String {
    match limit {
        Some(limit) => format!("calls of {name} over {limit} kept {by}"),
        None => format!("calls of {name} not kept {by}"),
    }
}

fn flag_set(name: &str, (flag, on): (PointFlag, bool), by: &str) -> String {
    match (flag, on) {
        (PointFlag::Fenced, true) => format!("{name} fenced {by}"),
        (PointFlag::Fenced, false) => format!("fences of {name} removed {by}"),
        (PointFlag::CountsAllocs, true) => format!("allocations of {name} counted {by}"),
        (PointFlag::CountsAllocs, false) => format!("allocations of {name} not counted {by}"),
    }
}

fn name_of(snapshot: &Snapshot, point: &Point) -> String {
    let of = snapshot.member(point.process).map(|process| format!(" of {process}"));
    point.shown_name() + &of.unwrap_or_default()
}

fn invalid(snapshot: &Snapshot, point: &Point) -> String {
    format!("{} is invalid: begun twice without an end", name_of(snapshot, point))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::snapshot::Loss;
    use pfp_read::source::synthetic::Synthetic;
    use pfp_read::source::{Change, Source};

    const SECOND: u64 = 1_000_000_000;

    struct Watch {
        source: Synthetic,
        log: EventLog,
        now: u64,
    }

    impl Watch {
        fn new() -> Self {
            let mut watch = Self { source: Synthetic::new(), log: EventLog::default(), now: 0 };
            watch.poll();
            watch
        }

        /// The texts of the entries that a poll added. The text of a problem begins with `!`.
        fn poll(&mut self) -> Vec<String> {
            self.now += SECOND;
            let before = self.log.pushed() as usize;
            self.log.observe(self.now, &Arc::new(self.source.poll().unwrap()));
            let new = self.log.pushed() as usize - before;
            let entries = self.log.entries();
            let newest = entries.iter().skip(entries.len() - new);
            newest.map(|e| format!("{}{}", if e.is_problem { "!" } else { "" }, e.text)).collect()
        }
    }

    #[test]
    fn the_log_names_the_author_of_switches_and_resets() {
        let mut watch = Watch::new();
        assert_eq!(watch.poll(), [""; 0]);
        watch.source.act(Change::Disable(3)).unwrap();
        watch.log.toggled(watch.now, 3, "io.crc", PointState::Off, None);
        watch.source.act(Change::Reset(4)).unwrap();
        watch.log.reset(watch.now, 4, "lz.compress", None);
        assert_eq!(watch.poll(), [""; 0], "its own changes are logged as they happen");
        let texts: Vec<_> = watch.log.entries().iter().skip(1).map(|e| e.text.as_str()).collect();
        let own = ["io.crc switched off by this viewer", "lz.compress reset by this viewer"];
        assert_eq!(texts, own);

        watch.source.act(Change::Enable(3)).unwrap();
        watch.source.act(Change::Reset(4)).unwrap();
        let others = [
            "io.crc switched on by another viewer or the program",
            "lz.compress reset by another viewer or the program",
        ];
        assert_eq!(watch.poll(), others);
        assert_eq!(watch.log.unread(), 0);

        // Two resets at once: one of them was made by another viewer.
        watch.source.act(Change::Reset(4)).unwrap();
        watch.source.act(Change::Reset(4)).unwrap();
        watch.log.reset(watch.now, 4, "lz.compress", None);
        assert_eq!(watch.poll(), [others[1]]);
    }

    /// Places answer at different times, and each place adds its own resets to the resets of the
    /// sum.
    #[test]
    fn partial_changes_are_logged_with_their_places() {
        let mut watch = Watch::new();
        let process = &mut watch.source.snapshot_mut().process;
        process.members = vec![pfp_read::snapshot::Process::default(); 2];
        let but = "1 of 2 processes did not follow (two@n2[7]): it is late";
        watch.log.toggled(watch.now, 3, "io.crc", PointState::Off, Some(but));
        watch.log.reset(watch.now, 4, "lz.compress", None);
        assert_eq!(watch.log.unread(), 1);
        let logged = &watch.log.entries().iter().rev().nth(1).unwrap().text;
        assert_eq!(*logged, format!("io.crc switched off by this viewer, but {but}"));
        let quiet = |watch: &mut Watch| {
            let texts = watch.poll().into_iter();
            texts.filter(|text| text.contains("another viewer")).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            watch.source.act(Change::Reset(4)).unwrap();
            assert_eq!(quiet(&mut watch), [""; 0]);
        }
        watch.source.act(Change::Disable(3)).unwrap();
        assert_eq!(quiet(&mut watch), [""; 0], "it follows late");
        watch.source.act(Change::Enable(3)).unwrap();
        assert_eq!(quiet(&mut watch).len(), 1);
    }

    #[test]
    fn losses_are_counted_together_for_a_minute() {
        let mut watch = Watch::new();
        for round in 1..=50 {
            watch.source.snapshot_mut().losses[Loss::BeginsRefused] += 2;
            assert_eq!(watch.poll().len(), usize::from(round == 1));
        }
        assert_eq!(watch.log.unread(), 1);
        assert_eq!(watch.log.entries().back().unwrap().text, "lost: 100 begins nested too deep");
        watch.now += 60 * SECOND;
        watch.source.snapshot_mut().losses[Loss::BeginsRefused] += 1;
        assert_eq!(watch.poll(), ["!lost: 1 more begins nested too deep, 101 in all"]);
        assert_eq!(watch.log.unread(), 2);
        watch.log.read();
        watch.source.snapshot_mut().losses[Loss::CellsBusy] = 5;
        assert_eq!(watch.poll(), [""; 0]);
        assert_eq!(watch.log.unread(), 0);
    }

    #[test]
    fn changes_of_clock_points_and_process_are_logged() {
        let mut watch = Watch::new();
        let snapshot = watch.source.snapshot_mut();
        snapshot.clock.kind = ClockKind::Cputime;
        snapshot.points[2].state = PointState::InvalidBeginBegin;
        let twin = Point { id: 9, name: String::new(), ..snapshot.points[1].clone() };
        // The made-up process does no work for points that it does not know.
        snapshot.points.push(twin);
        assert_eq!(
            watch.poll(),
            [
                "!the clock went from rseq to cputime",
                "!io.read is invalid: begun twice without an end",
                "a new point: #9"
            ]
        );
        watch.source.snapshot_mut().clock.ticks_per_second *= 1.000_01;
        assert_eq!(watch.poll(), [""; 0]);
        watch.source.snapshot_mut().clock.ticks_per_second *= 1.1;
        assert_eq!(watch.poll(), ["the clock was recalibrated: 2.86GHz"]);
        watch.source.snapshot_mut().process.state = ProcessState::Crashed;
        assert_eq!(watch.poll(), ["!my_app[4711] crashed or was killed"]);
        assert_eq!(watch.poll(), [""; 0]);
        let snapshot = watch.source.snapshot_mut();
        snapshot.process.state = ProcessState::Running;
        snapshot.process.segment_id = "f".repeat(32);
        snapshot.losses[Loss::LanesOverflowed] = 2;
        assert_eq!(
            watch.poll(),
            [
                "watching my_app[4711]: 10 points, clock cputime",
                "!io.read is invalid: begun twice without an end",
                "!lost: 2 threads share the overflow lane"
            ]
        );
    }

    #[test]
    fn processes_that_join_and_end_are_logged() {
        use pfp_read::snapshot::Process;
        let mut watch = Watch::new();
        let process = |pid: u32| Process {
            name: "worker".into(),
            pid,
            segment_id: pid.to_string(),
            ..Process::default()
        };
        let members = |watch: &mut Watch, change: &dyn Fn(&mut Vec<Process>)| {
            change(&mut watch.source.snapshot_mut().process.members);
            watch.poll()
        };
        assert_eq!(members(&mut watch, &|all| all.push(process(7))), ["worker[7] joined"]);
        // The points of a new process are not reported separately.
        let point =
            Point { id: 9, process: Some(1), ..watch.source.snapshot_mut().points[1].clone() };
        watch.source.snapshot_mut().points.push(point);
        let joined = members(&mut watch, &|all| all.extend([process(8), process(9)]));
        assert_eq!(joined, ["2 processes joined: worker[8], worker[9]"]);
        watch.source.act(Change::Disable(9)).unwrap();
        assert_eq!(
            watch.poll(),
            ["io.parse of worker[8] switched off by another viewer or the program"]
        );
        let ended = members(&mut watch, &|all| {
            all[0].state = ProcessState::Exited;
            all[2].state = ProcessState::Crashed;
        });
        assert_eq!(ended, ["worker[7] ended in order", "!worker[9] crashed or was killed"]);
        assert_eq!(watch.poll(), [""; 0]);
        let gone = members(&mut watch, &|all| drop(all.remove(2)));
        assert_eq!(gone, ["worker[9] ended a while ago and is no longer listed"]);
        // A process that came and died between two polls is reported with both events.
        let died = Process { state: ProcessState::Crashed, ..process(10) };
        let both = members(&mut watch, &|all| all.push(died.clone()));
        assert_eq!(both, ["worker[10] joined", "!worker[10] crashed or was killed"]);
    }

    #[test]
    fn the_log_is_bounded_and_merges_repetitions() {
        let mut log = EventLog::default();
        for n in 0..10 * KEPT as u64 {
            log.problem(n, format!("number {n}"));
            log.problem(n, format!("number {n}"));
        }
        assert_eq!(log.entries().len(), KEPT);
        assert_eq!(log.pushed(), 10 * KEPT as u64);
        assert_eq!(log.entries().back().unwrap().text, "number 9999");
    }
}

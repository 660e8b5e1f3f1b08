//! Compares a reader's figures of a program with its witness.

use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::time::{Duration, Instant};

use pfp_shm_layout::find;
use pfp_shm_layout::geometry::RING_SLOTS;
use pfp_shm_layout::header::{Facts, FormatError};
use pfp_shm_layout::lane::LaneState;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::ring::Record;
use pfp_shm_layout::segment::{OpenError, Segment};
use pfp_tests::place::Place;
use pfp_tests::witness::{self, LOG, NAMES, NUMBER, SEATS, Shared, point};
use pfp_tests::{cells, os};

use super::LANES;
use super::program::{Left, Program, read};

/// Maximum CPU time in which a reader finds, opens and reads the segment.
const WITHIN: Duration = Duration::from_millis(10);

/// Checks pictures of one program.
pub(crate) struct Judge<'a> {
    place: &'a Place,
    witness: &'a Shared,
    pid: u32,
    /// Whether times are on-CPU times, for which the witness gives no minimum.
    loose: bool,
    /// The segment, opened once, as soon as that was possible.
    early: Option<(&'static Segment, Facts)>,
    /// A reader that attached at the last check, and has a picture of the state then.
    previous: Option<Reader<&'static Segment>>,
    /// Exclusive ticks of each point, as last seen.
    ticks: [u64; NAMES.len()],
    /// Number of records on the first lane that the witness lacks.
    unwitnessed: u64,
    pub(crate) slowest: Duration,
    pub(crate) slowest_cpu: Duration,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(place: &'a Place, program: &'a Program, loose: bool) -> Self {
        Self {
            place,
            witness: &program.witness,
            pid: program.pid(),
            loose,
            early: None,
            previous: None,
            ticks: [0; NAMES.len()],
            unwitnessed: 0,
            slowest: Duration::ZERO,
            slowest_cpu: Duration::ZERO,
        }
    }

    /// Attaches as a new reader to the segment that the process has left; `None` if it cannot read
    /// the segment.
    pub(crate) fn attach(&self) -> Option<Left> {
        let found = find::find(&self.place.directory()).expect("the directory can be read");
        assert!(found.unreadable.is_empty(), "half a beacon: {:?}", found.unreadable);
        let entry = found.entries.iter().find(|entry| entry.info.process.pid == self.pid)?;
        match Segment::open(&entry.info.object) {
            Ok((segment, facts)) => {
                assert_eq!(facts.pid, self.pid);
                assert!(facts.exe.ends_with("pfp-test-target"), "{facts:?}");
                Some(read(&mut Reader::new(segment, facts)))
            }
            // The object is missing or incomplete, and the error shows which.
            Err(OpenError::Io(error)) => {
                let kind = error.kind();
                let started = kind == std::io::ErrorKind::InvalidData;
                assert!(started || kind == std::io::ErrorKind::NotFound, "{error}");
                None
            }
            Err(OpenError::Format(error)) => {
                let why = matches!(error, FormatError::NotASegment { .. });
                assert!(why, "an object that is not complete is taken for {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Checks the current state. `must` means that the segment must be readable.
    pub(crate) fn judge(&mut self, must: bool) {
        let start = (Instant::now(), os::thread_cpu());
        let mut left = self.attach();
        self.slowest = self.slowest.max(start.0.elapsed());
        let mut took = os::thread_cpu() - start.1;
        // A reader that was slow only because the machine is busy is fast the second time.
        if took > WITHIN {
            let start = os::thread_cpu();
            left = self.attach();
            took = os::thread_cpu() - start;
        }
        assert!(took <= WITHIN, "a picture took {took:?} of CPU time");
        self.slowest_cpu = self.slowest_cpu.max(took);
        assert!(left.is_some() || !must, "there is nothing to be seen");
        let Some(left) = left else {
            self.previous = None;
            return;
        };
        self.check(&left);
        // A reader that attached at the last check must read the changes since then, too.
        if let Some(mut reader) = self.previous.take() {
            let early = read(&mut reader);
            self.check(&early);
        }
        if self.early.is_none()
            && let Some(entry) = self.place.entry(self.pid)
            && let Ok((segment, facts)) = Segment::open(&entry.info.object)
        {
            self.early = Some((Box::leak(Box::new(segment)), facts));
        }
        if let Some((segment, facts)) = &self.early {
            let mut reader = Reader::new(*segment, facts.clone());
            // The next check polls the reader again.
            reader.poll();
            self.previous = Some(reader);
        }
    }

    fn check(&mut self, left: &Left) {
        let picture = &left.picture;
        let losses = picture.losses;
        assert_eq!((losses.cells_busy, losses.clock_anomalies, losses.points_refused), (0, 0, 0));
        assert_eq!(
            (losses.mismatched_ends, losses.begins_refused, losses.space_refused),
            (0, 0, 0)
        );
        let ids = self.check_points(left);
        for (at, id) in ids.iter().enumerate() {
            self.check_counts(left, at, *id);
        }
        self.check_lanes(left);
        self.check_rings(left, &ids);
    }

    /// Checks the points' names; returns the number of each point.
    fn check_points(&self, left: &Left) -> [Option<u32>; NAMES.len()] {
        let mut ids = [None; NAMES.len()];
        for point in &left.picture.points {
            let name = point.name.as_str();
            if point.id == 0 {
                assert_eq!(name, "overhead");
                continue;
            }
            if point.id == NUMBER && name.is_empty() {
                ids[point::NUMBERED] = Some(NUMBER);
                continue;
            }
            let at = NAMES.iter().position(|known| *known == name);
            let at = at.unwrap_or_else(|| panic!("a point is called {name:?}"));
            assert_eq!(ids[at].replace(point.id), None, "{name} is there twice");
            if at == point::NUMBERED {
                assert_eq!(point.id, NUMBER);
            } else {
                assert!(point.file.ends_with("killed.rs") && point.line > 0, "{point:?}");
            }
            let steered = &self.witness.steered[at];
            let get = |word: &AtomicU64| word.load(Acquire);
            let epochs = get(&steered.reset)..=get(&steered.resets);
            assert!(epochs.contains(&u64::from(point.control.epoch())), "{point:?}");
            if at == point::TOGGLED {
                let on = u64::from(point.control.enabled());
                assert!(on == get(&steered.was_on) || on == get(&steered.is_on), "{point:?}");
            }
        }
        ids
    }

    fn check_counts(&mut self, left: &Left, at: usize, id: Option<u32>) {
        let cells = || left.picture.cells.iter().filter(|cell| Some(cell.point) == id);
        let name = NAMES[at];
        let seats = |seats: &[usize]| {
            let of_seats = seats.iter().map(|seat| self.witness.counts(*seat, at));
            of_seats.fold((0, 0), |sum, of_seat| (sum.0 + of_seat.0, sum.1 + of_seat.1))
        };
        // The first thread owns the first lane, the next two share the second one after the other,
        // and the last thread has none.
        for (lane, of_lane) in [(0, &[0][..]), (1, &[1, 2]), (LANES as u32, &[3])] {
            let (least, most) = seats(of_lane);
            assert!(most - least <= 1);
            let counted: u64 =
                cells().filter(|cell| cell.lane == lane).map(|cell| cell.lifetime_count).sum();
            assert!(
                (least..=most).contains(&counted),
                "{name} on lane {lane}: {counted} counted, {least} have returned of {most}"
            );
        }
        let (least, most) = seats(&[3]);
        for cell in cells() {
            if cell.lane < LANES as u32 {
                cells::check_left(cell);
            } else {
                cells::check_left_shared(cell, most - least);
            }
        }
        self.check_window(left, at, id);
        self.check_ticks(left, at, id);
        check_calls(left, id);
    }

    /// Checks the counts since the last reset.
    fn check_window(&self, left: &Left, at: usize, id: Option<u32>) {
        let Some(point) = left.picture.points.iter().find(|point| Some(point.id) == id) else {
            return;
        };
        let steered = &self.witness.steered[at];
        let get = |word: &AtomicU64| word.load(Acquire);
        let (mut least, mut most) = (0, 0);
        for seat in 0..SEATS {
            let of_seat = self.witness.counts(seat, at);
            (least, most) = (least + of_seat.0, most + of_seat.1);
        }
        let (called, done) = (get(&steered.resets), get(&steered.reset));
        if called != done && u64::from(point.control.epoch()) == done {
            // The reset that was called is not in effect yet.
            return;
        }
        if called > 0 {
            let before = get(&steered.before);
            least = least.saturating_sub(before + get(&steered.open));
            most -= before;
        }
        let cells = left.picture.cells.iter().filter(|cell| Some(cell.point) == id);
        let counted: u64 = cells.map(|cell| cell.live.count + cell.retired.count).sum();
        assert!(
            (least..=most).contains(&counted),
            "{}: {counted} since the reset, not {least} to {most}",
            NAMES[at]
        );
    }

    fn check_ticks(&mut self, left: &Left, at: usize, id: Option<u32>) {
        let (mut least, mut most, mut inside) = (0, 0, 0);
        for seat in &self.witness.seats {
            let calls = &seat.calls[at];
            let get = |word: &AtomicU64| word.load(Acquire);
            least += get(&calls.least);
            most += get(&calls.most);
            inside += get(&calls.inside);
            if get(&calls.ends) > get(&calls.returned) {
                most += witness::now().saturating_sub(get(&calls.since));
            }
        }
        let cells = left.picture.cells.iter().filter(|cell| Some(cell.point) == id);
        let ticks: u64 = cells.map(|cell| cell.lifetime_exclusive).sum();
        // pfp subtracts the cost of measuring, whose exact size is unknown here.
        let least = least.saturating_sub(inside * (4 * left.overhead + 500));
        let name = NAMES[at];
        assert!(
            self.loose || ticks >= least,
            "{name}: {ticks} ticks, at least {least} have passed"
        );
        assert!(ticks <= most, "{name}: {ticks} ticks, no more than {most} have passed");
        assert!(ticks >= self.ticks[at], "{name}: {} ticks became {ticks}", self.ticks[at]);
        self.ticks[at] = ticks;
    }

    fn check_lanes(&self, left: &Left) {
        let lanes = &left.picture.lanes;
        let live = |tid: u64| {
            let with = |lane: &&pfp_shm_layout::reader::LaneReading| {
                !lane.overflow
                    && lane.lane.state == LaneState::Live
                    && u64::from(lane.lane.tid) == tid
            };
            lanes.iter().filter(with).count()
        };
        let mut known = 0;
        for (number, seat) in self.witness.seats.iter().enumerate() {
            let get = |word: &AtomicU64| word.load(Acquire);
            let tid = get(&seat.tid);
            if tid == 0 || get(&seat.claims) == 0 {
                continue;
            }
            let found = live(tid);
            known += found;
            let has_lane = get(&seat.claimed) == 1 && get(&seat.leaves) == 0;
            if number as u64 == LANES + 1 {
                assert_eq!(found, 0, "there was no lane left");
                let overflowed = left.picture.losses.lanes_overflowed;
                assert!(overflowed == 1 || !has_lane, "{overflowed} threads without a lane");
            } else {
                assert!(found == 1 || !has_lane && found == 0, "thread {tid}: {lanes:?}");
            }
        }
        let all = lanes.iter().filter(|lane| lane.lane.state == LaneState::Live && !lane.overflow);
        assert_eq!(all.count(), known, "a lane of nobody's: {lanes:?}");
        for lane in lanes.iter().filter(|lane| lane.lane.tid != 0 && !lane.overflow) {
            assert_eq!(lane.lane.name, b"pfp-test-target", "{lane:?}");
        }
    }

    /// Checks that every record belongs to one end in the witness, and that none is missing.
    fn check_rings(&mut self, left: &Left, ids: &[Option<u32>; NAMES.len()]) {
        for (lane, seats) in [(0, &[0][..]), (1, &[1, 2])] {
            let Some((drained, records)) = left.rings.get(&lane) else { continue };
            let written = drained.next;
            assert_eq!(drained.lost, written.saturating_sub(RING_SLOTS as u64 - 1));
            assert_eq!(records.len() as u64, written - drained.lost, "records of lane {lane}");
            let mut ends = seats.iter().rev().flat_map(|seat| {
                let seat = &self.witness.seats[*seat];
                let logged = seat.logged.load(Acquire);
                (logged.saturating_sub(LOG as u64)..logged)
                    .rev()
                    .map(move |number| &seat.log[number as usize % LOG])
            });
            let mut at_end = true;
            for record in records.iter().rev().filter(|record| record.point != 0) {
                let mut end = ends.next().expect("more records than ends");
                if at_end && end.ticks[3].load(Acquire) == 0 && !self.is_of(record, end, ids, left)
                {
                    end = ends.next().expect("more records than ends");
                }
                at_end = false;
                assert!(self.is_of(record, end, ids, left), "{record:?} is not of {end:?}");
            }
            // Each end has one record, except perhaps a last one that has not returned.
            let logged: u64 =
                seats.iter().map(|seat| self.witness.seats[*seat].logged.load(Acquire)).sum();
            if lane == 0 && logged == 0 {
                // These records come from the calibration.
                self.unwitnessed = written;
            }
            let unwitnessed = if lane == 0 { self.unwitnessed } else { 0 };
            if !self.loose {
                let all = logged + unwitnessed;
                let calling = seats.iter().any(|seat| self.is_ending(*seat));
                let bounds = all - u64::from(calling)..=all;
                assert!(
                    bounds.contains(&written),
                    "lane {lane}: {written} records, not {bounds:?}"
                );
            }
        }
    }

    /// Whether the last end of a thread has been called and has not returned.
    fn is_ending(&self, seat: usize) -> bool {
        let seat = &self.witness.seats[seat];
        let logged = seat.logged.load(Acquire);
        logged > 0 && seat.log[(logged - 1) as usize % LOG].ticks[3].load(Acquire) == 0
    }

    fn is_of(
        &self,
        record: &Record,
        end: &witness::End,
        ids: &[Option<u32>; NAMES.len()],
        left: &Left,
    ) -> bool {
        let at = end.point.load(Acquire) as usize - 1;
        let [before, begun, ending, ended] = end.ticks.each_ref().map(|word| word.load(Acquire));
        let ended = if ended == 0 { witness::now() } else { ended };
        // A lap's next region starts once the last one is recorded.
        let slack = 4 * left.overhead + 500;
        let stop = record.start.wrapping_add(record.span);
        let parts = end.parts.load(Acquire) == 1;
        Some(record.point) == ids[at]
            && (before..=begun + slack).contains(&record.start)
            && (ending.saturating_sub(slack)..=ended).contains(&stop)
            && (parts || self.loose || record.exclusive <= record.span)
            && (at != point::TASK || record.context != 0)
    }
}

/// On each lane, the calls by all callers add up to the point's figures. One measurement in
/// progress may be in the cell already and not in its edge yet.
fn check_calls(left: &Left, id: Option<u32>) {
    for calls in &left.calls {
        let cells = left.picture.cells.iter();
        let cells = cells.filter(|cell| cell.lane == calls.lane && Some(cell.point) == id);
        let (count, exclusive) = cells.fold((0, 0), |(count, exclusive), cell| {
            let (live, retired) = (&cell.live, &cell.retired);
            (count + live.count + retired.count, exclusive + live.exclusive + retired.exclusive)
        });
        let edges = calls.edges.iter().filter(|edge| Some(edge.callee) == id);
        let called = edges.fold((0, 0), |(count, exclusive), edge| {
            (count + edge.sums.count, exclusive + edge.sums.exclusive)
        });
        let is_all = called == (count, exclusive);
        let lacks_one = called.0 + 1 == count && called.1 <= exclusive;
        assert!(is_all || lacks_one, "{called:?} of {count} and {exclusive}: {calls:?}");
        assert_eq!(calls.unplaced, 0);
    }
}

//! Programs that are killed. One uses every feature of a point, and stops itself where the test is
//! to run it instruction by instruction; another one measures until it is killed. They record their
//! progress in memory that they share with the test, a [`witness`].

use std::sync::atomic::{
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pfp_tests::os;
use pfp_tests::script::in_turn;
use pfp_tests::stepper::{stop_here, trace_me};
use pfp_tests::witness::{
    self, FILL, HAND_OVER, LET_GO, NAMES, NUMBER, Open, RUN, SEATS, Seat, Span, Witness, now,
    point, stage,
};

/// Number of rounds that run instruction by instruction.
const ROUNDS: u64 = 64;
/// Number of nested pairs of regions that are measured while the ring wraps.
const AROUND: u64 = 8;

static POINTS: [pfp::Point; NAMES.len()] = {
    let mut points = [const { pfp::Point::new("") }; NAMES.len()];
    let mut at = 0;
    while at < NAMES.len() {
        points[at] = pfp::Point::new(NAMES[at]);
        at += 1;
    }
    points
};

/// How a region is begun and ended.
#[derive(Clone, Copy)]
enum RegionKind {
    Scope,
    Hand,
}

/// A thread and its seat in the witness.
#[derive(Clone, Copy)]
struct Me {
    witness: &'static Witness,
    seat: &'static Seat,
}

impl Me {
    fn sits(witness: &'static Witness, seat: usize) -> Self {
        let me = Self { witness, seat: &witness.seats[seat] };
        me.seat.tid.store(u64::from(os::tid()), Release);
        me
    }

    /// Names the stage that begins here and lasts until the next stop.
    fn stage(&self, stage: u64) {
        self.seat.stage.store(stage, Release);
        stop_here();
    }

    #[inline(always)]
    fn region(&self, at: usize, way: RegionKind, body: impl FnOnce() -> Span) -> Span {
        let before = now();
        match way {
            RegionKind::Scope => {
                let guard = self.seat.call(|| POINTS[at].measure());
                let open = Open { begun: [before, now()], parts: None };
                let inside = body();
                self.seat.end(at, open, inside, || drop(guard))
            }
            RegionKind::Hand if at == point::NUMBERED => {
                self.seat.call(|| pfp::Point::numbered(NUMBER).begin_once());
                let open = Open { begun: [before, now()], parts: None };
                let inside = body();
                self.seat.end(at, open, inside, || pfp::Point::numbered(NUMBER).end())
            }
            RegionKind::Hand => {
                self.seat.call(|| POINTS[at].begin());
                let open = Open { begun: [before, now()], parts: None };
                let inside = body();
                self.seat.end(at, open, inside, || POINTS[at].end())
            }
        }
    }

    fn leaf(&self, at: usize, way: RegionKind) -> Span {
        self.region(at, way, Span::default)
    }

    /// One measurement in three parts.
    fn latched(&self) {
        let mut parts = Span::default();
        for _ in 0..2 {
            let before = now();
            self.seat.call(|| POINTS[point::LATCHED].begin());
            let begun = now();
            let end = now();
            self.seat.call(|| POINTS[point::LATCHED].end_latched());
            parts = parts.and(Span { outer: now() - before, inner: end - begun, pairs: 1 });
        }
        let before = now();
        self.seat.call(|| POINTS[point::LATCHED].begin());
        let open = Open { begun: [before, now()], parts: Some(parts) };
        self.seat.end(point::LATCHED, open, Span::default(), || POINTS[point::LATCHED].end());
    }

    /// Consecutive regions: each begins where the last one ends.
    fn laps(&self) {
        let mut begun = [now(), 0];
        let mut guard = self.seat.call(|| POINTS[point::LAP_A].measure());
        begun[1] = now();
        for (at, next) in [(point::LAP_A, point::LAP_B), (point::LAP_B, point::LAP_A)] {
            let before = now();
            let open = Open { begun, parts: None };
            self.seat.end(at, open, Span::default(), || guard.lap(&POINTS[next]));
            begun = [before, now()];
        }
        let open = Open { begun, parts: None };
        self.seat.end(point::LAP_A, open, Span::default(), || drop(guard));
    }

    /// A task that is suspended inside its region.
    fn task(&self, idle: &pfp::ExecutionContext, task: &pfp::ExecutionContext) {
        // Whether the time of the suspension counts is unknown, so any length is accepted.
        let aside = Span { outer: u64::MAX / 2, ..Span::default() };
        self.seat.call(|| pfp::task_switch(idle, task));
        let before = now();
        self.seat.call(|| POINTS[point::TASK].begin());
        let open = Open { begun: [before, now()], parts: None };
        self.seat.call(|| pfp::task_switch(task, idle));
        self.leaf(point::INNER, RegionKind::Scope);
        self.seat.call(|| pfp::task_switch(idle, task));
        self.seat.end(point::TASK, open, aside, || POINTS[point::TASK].end());
        self.seat.call(|| pfp::task_switch(task, idle));
    }

    fn reset(&self, at: usize, open: u64) {
        let steered = &self.witness.steered[at];
        let returned = (0..SEATS).map(|seat| self.witness.counts(seat, at).0).sum();
        steered.before.store(returned, Relaxed);
        steered.open.store(open, Relaxed);
        steered.resets.store(steered.resets.load(Relaxed) + 1, Release);
        self.seat.call(|| POINTS[at].reset());
        steered.reset.store(steered.reset.load(Relaxed) + 1, Release);
    }

    fn switch(&self, on: bool) {
        let steered = &self.witness.steered[point::TOGGLED];
        steered.is_on.store(u64::from(on), Release);
        let change = if on { pfp::Point::enable } else { pfp::Point::disable };
        self.seat.call(|| change(&POINTS[point::TOGGLED]));
        steered.was_on.store(u64::from(on), Release);
    }

    /// Uses every kind of region once.
    fn round(&self, number: u64, tasks: &[pfp::ExecutionContext; 2]) {
        self.region(point::OUTER, RegionKind::Scope, || self.leaf(point::INNER, RegionKind::Scope));
        self.region(point::HAND, RegionKind::Hand, || self.leaf(point::INNER, RegionKind::Hand));
        self.leaf(point::NUMBERED, RegionKind::Hand);
        match number % 8 {
            0 => self.latched(),
            1 | 5 => self.laps(),
            2 => self.task(&tasks[0], &tasks[1]),
            3 => {
                self.leaf(point::RESET, RegionKind::Scope);
                self.reset(point::RESET, 0);
                self.leaf(point::RESET, RegionKind::Scope);
            }
            4 => {
                self.switch(false);
                drop(self.seat.call(|| POINTS[point::TOGGLED].measure()));
                self.switch(true);
                self.leaf(point::TOGGLED, RegionKind::Scope);
            }
            6 => {
                // Reset in the middle of the region.
                self.region(point::RESET, RegionKind::Scope, || {
                    self.reset(point::RESET, 1);
                    Span::default()
                });
                self.leaf(point::RESET, RegionKind::Hand);
            }
            _ => {
                let weight = POINTS[point::INNER].alpha().map_or(Some(0.25), |_| None);
                self.seat.call(|| match weight {
                    Some(weight) => POINTS[point::INNER].set_alpha(weight).is_ok(),
                    None => {
                        POINTS[point::INNER].clear_alpha();
                        true
                    }
                });
            }
        }
    }

    /// Measures a point while the viewer enables and disables it. The witness records the call as
    /// counted, as not counted, or as uncertain if the point changed.
    fn toggled(&self) {
        let calls = &self.seat.calls[point::TOGGLED];
        let switched = self.witness.switched.load(Acquire);
        let switching = self.witness.switching.load(Acquire);
        let on = POINTS[point::TOGGLED].is_enabled();
        calls.ends.store(calls.ends.load(Relaxed) + 1, Release);
        drop(POINTS[point::TOGGLED].measure());
        // The fence keeps the second read of `switching` after the measurement.
        fence(SeqCst);
        let sure = switched == switching && self.witness.switching.load(Relaxed) == switching;
        if sure && on {
            calls.returned.store(calls.returned.load(Relaxed) + 1, Release);
        } else if sure {
            calls.ends.store(calls.ends.load(Relaxed) - 1, Release);
        }
    }

    fn first_region(&self) {
        self.seat.claims.store(1, Release);
        self.leaf(point::INNER, RegionKind::Scope);
        self.seat.claimed.store(1, Release);
    }
}

/// Runs each of [`witness::STAGES`] once. With `alone` it runs only the stages without threads,
/// with `short` only the first and the last.
pub(crate) fn stepped(path: &str, less: Option<&str>) {
    let witness = witness::open(path);
    for steered in &witness.steered {
        steered.was_on.store(1, Relaxed);
        steered.is_on.store(1, Relaxed);
    }
    let me = Me::sits(witness, 0);
    trace_me();
    me.stage(RUN);
    me.seat.claims.store(1, Release);
    me.stage(stage::CREATION);
    me.seat.call(pfp::init).ok();
    me.seat.claimed.store(1, Release);
    if less != Some("short") {
        regions(&me);
    }
    if less.is_none() {
        threads(&me);
    }
    me.stage(stage::EXIT);
}

/// The stages of the first thread alone.
fn regions(me: &Me) {
    me.stage(stage::FIRST);
    let tasks = [(); 2].map(|()| pfp::ExecutionContext::new());
    me.seat.call(|| pfp::Point::numbered(NUMBER).set_name(NAMES[point::NUMBERED]));
    me.seat.call(|| pfp::Point::numbered(NUMBER).enable());
    for number in 0..8 {
        me.round(number, &tasks);
    }
    me.stage(stage::ROUNDS);
    for number in 0..ROUNDS {
        me.round(number, &tasks);
    }
    me.stage(RUN);
    // The test computes how many records fill the ring.
    me.stage(FILL);
    for _ in 0..me.witness.room.load(Acquire) {
        me.leaf(point::INNER, RegionKind::Scope);
    }
    me.stage(stage::WRAP);
    for _ in 0..AROUND {
        me.region(point::OUTER, RegionKind::Scope, || me.leaf(point::INNER, RegionKind::Scope));
    }
    me.stage(RUN);
}

/// Runs more threads while the first one waits inside a region.
fn threads(me: &Me) {
    let beside = |seat: u64| {
        // The seat is stored before the stop: the test waits for the thread as soon as it sees the
        // stop.
        me.witness.next.store(seat, Release);
        me.stage(HAND_OVER);
    };
    me.region(point::HAND, RegionKind::Hand, || {
        // A thread that ends.
        let witness = me.witness;
        let first = thread::spawn(move || {
            let me = waiting(witness, 1);
            me.stage(stage::CLAIM);
            me.first_region();
            me.stage(stage::BESIDE);
            for _ in 0..4 {
                me.region(point::OUTER, RegionKind::Scope, || {
                    me.leaf(point::INNER, RegionKind::Hand)
                });
                me.leaf(point::HAND, RegionKind::Hand);
            }
            // The region stays open when the thread ends, and so is never counted.
            me.seat.call(|| POINTS[point::OUTER].begin());
            me.stage(stage::END);
            me.seat.leaves.store(1, Release);
        });
        beside(1);
        first.join().expect("it only counts");
        // A thread that reuses the lane of the ended thread, with its cells.
        let (go, wait) = mpsc::channel::<()>();
        let (say, hear) = mpsc::channel();
        let second = thread::spawn(move || {
            let me = waiting(witness, 2);
            me.stage(stage::CLAIM);
            me.first_region();
            me.stage(stage::BESIDE);
            for _ in 0..2 {
                me.region(point::OUTER, RegionKind::Scope, || {
                    me.leaf(point::INNER, RegionKind::Hand)
                });
                me.leaf(point::HAND, RegionKind::Hand);
            }
            // This cell is reset before the thread uses it for the first time.
            me.reset(point::OUTER, 0);
            me.leaf(point::OUTER, RegionKind::Scope);
            let _ = say.send(());
            me.stage(LET_GO);
            let _ = wait.recv();
            me.seat.leaves.store(1, Release);
        });
        beside(2);
        let _ = hear.recv();
        // A thread that finds no free lane.
        let third = thread::spawn(move || {
            let me = waiting(witness, 3);
            me.stage(stage::OVERFLOW);
            me.first_region();
            for _ in 0..4 {
                me.region(point::OUTER, RegionKind::Scope, || {
                    me.leaf(point::INNER, RegionKind::Hand)
                });
            }
            // Resets points of the shared overflow lane: the next region retires their figures.
            me.stage(stage::OVERFLOW);
            for at in [point::OUTER, point::HAND] {
                me.leaf(at, RegionKind::Scope);
                // The first thread is inside a region of [`point::HAND`].
                me.reset(at, u64::from(at == point::HAND));
                me.leaf(at, RegionKind::Scope);
                me.leaf(at, RegionKind::Hand);
            }
            me.seat.leaves.store(1, Release);
        });
        beside(3);
        third.join().expect("it only counts");
        drop(go);
        second.join().expect("it only counts");
        Span::default()
    });
}

/// Stops a thread for the first time, so that it can run instruction by instruction.
fn waiting(witness: &'static Witness, seat: usize) -> Me {
    trace_me();
    let me = Me::sits(witness, seat);
    me.stage(RUN);
    me
}

/// The test stops a thread halfway through creating the segment, while another thread begins its
/// first region.
pub(crate) fn slow_start(path: &str) {
    let witness = witness::open(path);
    let me = Me::sits(witness, 0);
    let beside = thread::spawn(move || {
        let me = Me::sits(witness, 1);
        while witness.pause.load(Acquire) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        me.first_region();
    });
    trace_me();
    me.stage(RUN);
    me.stage(stage::CREATION);
    pfp::init().ok();
    me.stage(RUN);
    let _ = beside.join();
    me.stage(RUN);
}

/// Two seats, each used by one measuring thread after the other, until the program is killed.
pub(crate) fn endless(path: &str) {
    let witness = witness::open(path);
    // Create the segment first: regions begun before it exists would be missed, and their number
    // would be unknown after the kill.
    pfp::init().ok();
    thread::scope(|scope| {
        for seat in 0..2 {
            scope.spawn(move || {
                loop {
                    let _ = thread::spawn(move || some(witness, seat)).join();
                }
            });
        }
    });
}

fn some(witness: &'static Witness, seat: usize) {
    let me = Me::sits(witness, seat);
    for number in 0..100 {
        me.region(point::OUTER, RegionKind::Scope, || {
            me.region(point::INNER, RegionKind::Scope, || me.leaf(point::HAND, RegionKind::Hand))
        });
        if number % 32 == seat as u64 {
            me.reset(point::HAND, 0);
        }
    }
}

/// Two threads measure until they are killed; the viewer switches and resets their points.
pub(crate) fn watched(path: &str) {
    let witness = witness::open(path);
    thread::scope(|scope| {
        for seat in 0..2 {
            scope.spawn(move || {
                let me = Me::sits(witness, seat);
                let round = || {
                    me.region(point::RESET, RegionKind::Scope, || {
                        me.leaf(point::INNER, RegionKind::Hand)
                    });
                    me.toggled();
                    me.leaf(point::HAND, RegionKind::Hand);
                };
                in_turn(round);
                for number in 0_u64.. {
                    round();
                    // The threads sleep regularly, so that viewers get CPU time, too.
                    if number.is_multiple_of(1_000) {
                        thread::sleep(Duration::from_micros(200));
                    }
                    if witness.pause.load(Acquire) != 0 {
                        me.seat.rests.store(1, Release);
                        while witness.pause.load(Acquire) != 0 {
                            thread::sleep(Duration::from_micros(100));
                        }
                        me.seat.rests.store(0, Release);
                    }
                }
            });
        }
    });
}

//! Programs that are killed: one goes through all that a point can go through and
//! stops itself where it is to be run instruction by instruction, one calls without
//! end. What they have done stands in a witness.

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

/// Rounds of the script that are run instruction by instruction.
const ROUNDS: u64 = 64;
/// Pairs of regions at the brim of the ring.
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
enum Way {
    Scope,
    Hand,
}

/// One thread and what is known of it.
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

    /// From here on until the next stop.
    fn stage(&self, stage: u64) {
        self.seat.stage.store(stage, Release);
        stop_here();
    }

    #[inline(always)]
    fn region(&self, at: usize, way: Way, body: impl FnOnce() -> Span) -> Span {
        let before = now();
        match way {
            Way::Scope => {
                let guard = self.seat.call(|| POINTS[at].measure());
                let open = Open { begun: [before, now()], parts: None };
                let inside = body();
                self.seat.end(at, open, inside, || drop(guard))
            }
            Way::Hand if at == point::NUMBERED => {
                self.seat.call(|| pfp::Point::numbered(NUMBER).begin_once());
                let open = Open { begun: [before, now()], parts: None };
                let inside = body();
                self.seat.end(at, open, inside, || pfp::Point::numbered(NUMBER).end())
            }
            Way::Hand => {
                self.seat.call(|| POINTS[at].begin());
                let open = Open { begun: [before, now()], parts: None };
                let inside = body();
                self.seat.end(at, open, inside, || POINTS[at].end())
            }
        }
    }

    fn leaf(&self, at: usize, way: Way) -> Span {
        self.region(at, way, Span::default)
    }

    /// Three parts, one measurement.
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

    /// Regions beside each other, each of which begins where one ends.
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

    /// A task that is put aside inside its region.
    fn task(&self, idle: &pfp::ExecutionContext, task: &pfp::ExecutionContext) {
        // What it takes while it is aside is not known to be counted or not.
        let aside = Span { outer: u64::MAX / 2, ..Span::default() };
        self.seat.call(|| pfp::task_switch(idle, task));
        let before = now();
        self.seat.call(|| POINTS[point::TASK].begin());
        let open = Open { begun: [before, now()], parts: None };
        self.seat.call(|| pfp::task_switch(task, idle));
        self.leaf(point::INNER, Way::Scope);
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

    /// Everything there is, once.
    fn round(&self, number: u64, tasks: &[pfp::ExecutionContext; 2]) {
        self.region(point::OUTER, Way::Scope, || self.leaf(point::INNER, Way::Scope));
        self.region(point::HAND, Way::Hand, || self.leaf(point::INNER, Way::Hand));
        self.leaf(point::NUMBERED, Way::Hand);
        match number % 8 {
            0 => self.latched(),
            1 | 5 => self.laps(),
            2 => self.task(&tasks[0], &tasks[1]),
            3 => {
                self.leaf(point::RESET, Way::Scope);
                self.reset(point::RESET, 0);
                self.leaf(point::RESET, Way::Scope);
            }
            4 => {
                self.switch(false);
                drop(self.seat.call(|| POINTS[point::TOGGLED].measure()));
                self.switch(true);
                self.leaf(point::TOGGLED, Way::Scope);
            }
            6 => {
                // In the middle of the region.
                self.region(point::RESET, Way::Scope, || {
                    self.reset(point::RESET, 1);
                    Span::default()
                });
                self.leaf(point::RESET, Way::Hand);
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

    /// A point that others switch meanwhile: the call is counted for sure, not at all,
    /// or nobody knows.
    fn toggled(&self) {
        let calls = &self.seat.calls[point::TOGGLED];
        let switched = self.witness.switched.load(Acquire);
        let switching = self.witness.switching.load(Acquire);
        let on = POINTS[point::TOGGLED].is_enabled();
        calls.ends.store(calls.ends.load(Relaxed) + 1, Release);
        drop(POINTS[point::TOGGLED].measure());
        // What the point was is read before this.
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
        self.leaf(point::INNER, Way::Scope);
        self.seat.claimed.store(1, Release);
    }
}

/// Comes by each of [`witness::STAGES`] once; `alone` only by those without threads,
/// `short` only by the first and the last.
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

/// All that the first thread does by itself.
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
    // The test knows how full the ring is.
    me.stage(FILL);
    for _ in 0..me.witness.room.load(Acquire) {
        me.leaf(point::INNER, Way::Scope);
    }
    me.stage(stage::WRAP);
    for _ in 0..AROUND {
        me.region(point::OUTER, Way::Scope, || me.leaf(point::INNER, Way::Scope));
    }
    me.stage(RUN);
}

/// Threads beside the first one, which waits inside a region.
fn threads(me: &Me) {
    let beside = |seat: u64| {
        // In this order: the test waits for the thread as soon as it hears of it.
        me.witness.next.store(seat, Release);
        me.stage(HAND_OVER);
    };
    me.region(point::HAND, Way::Hand, || {
        // One that ends.
        let witness = me.witness;
        let first = thread::spawn(move || {
            let me = waiting(witness, 1);
            me.stage(stage::CLAIM);
            me.first_region();
            me.stage(stage::BESIDE);
            for _ in 0..4 {
                me.region(point::OUTER, Way::Scope, || me.leaf(point::INNER, Way::Hand));
                me.leaf(point::HAND, Way::Hand);
            }
            // With a region open: it is never counted.
            me.seat.call(|| POINTS[point::OUTER].begin());
            me.stage(stage::END);
            me.seat.leaves.store(1, Release);
        });
        beside(1);
        first.join().expect("it only counts");
        // One that comes after it, and finds its cells.
        let (go, wait) = mpsc::channel::<()>();
        let (say, hear) = mpsc::channel();
        let second = thread::spawn(move || {
            let me = waiting(witness, 2);
            me.stage(stage::CLAIM);
            me.first_region();
            me.stage(stage::BESIDE);
            for _ in 0..2 {
                me.region(point::OUTER, Way::Scope, || me.leaf(point::INNER, Way::Hand));
                me.leaf(point::HAND, Way::Hand);
            }
            // One that was there before it, and is reset before it is used.
            me.reset(point::OUTER, 0);
            me.leaf(point::OUTER, Way::Scope);
            let _ = say.send(());
            me.stage(LET_GO);
            let _ = wait.recv();
            me.seat.leaves.store(1, Release);
        });
        beside(2);
        let _ = hear.recv();
        // One that finds no lane.
        let third = thread::spawn(move || {
            let me = waiting(witness, 3);
            me.stage(stage::OVERFLOW);
            me.first_region();
            for _ in 0..4 {
                me.region(point::OUTER, Way::Scope, || me.leaf(point::INNER, Way::Hand));
            }
            // A reset of what is shared: the region after it moves the figures.
            me.stage(stage::OVERFLOW);
            for at in [point::OUTER, point::HAND] {
                me.leaf(at, Way::Scope);
                // The first thread is inside a region of it.
                me.reset(at, u64::from(at == point::HAND));
                me.leaf(at, Way::Scope);
                me.leaf(at, Way::Hand);
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

/// A thread that is to be run instruction by instruction, at its first stop.
fn waiting(witness: &'static Witness, seat: usize) -> Me {
    trace_me();
    let me = Me::sits(witness, seat);
    me.stage(RUN);
    me
}

/// A thread makes the segment and is held up in the middle of it; another one comes by
/// its first region meanwhile.
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

/// Two threads that call until they are killed, and end now and then for others.
pub(crate) fn endless(path: &str) {
    let witness = witness::open(path);
    // What is begun before there is a segment, and missed, dies with the program.
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
        me.region(point::OUTER, Way::Scope, || {
            me.region(point::INNER, Way::Scope, || me.leaf(point::HAND, Way::Hand))
        });
        if number % 32 == seat as u64 {
            me.reset(point::HAND, 0);
        }
    }
}

/// Two threads whose points somebody steers from outside, until they are killed.
pub(crate) fn watched(path: &str) {
    let witness = witness::open(path);
    thread::scope(|scope| {
        for seat in 0..2 {
            scope.spawn(move || {
                let me = Me::sits(witness, seat);
                let round = || {
                    me.region(point::RESET, Way::Scope, || me.leaf(point::INNER, Way::Hand));
                    me.toggled();
                    me.leaf(point::HAND, Way::Hand);
                };
                in_turn(round);
                for number in 0_u64.. {
                    round();
                    // Not more than half of a CPU, which viewers need as well.
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

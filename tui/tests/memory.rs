//! Hours of polls, with threads, tasks and losses that appear and disappear: the viewer's memory
//! does not grow.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;
use crossterm::event::{KeyCode, KeyEvent};
use pfp_read::snapshot::{
    Bucket, Cell, Lane, LaneKind, Loss, Point, PointState, Record, Snapshot, Stats,
};
use pfp_read::source::Source;
use pfp_read::source::synthetic::{Synthetic, bucket_of};
use pfp_remote::Machine;
use pfp_top::app::App;
use pfp_top::common::Options;
use pfp_top::view;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// The system's allocator, with a counter.
struct Counted;

/// Bytes allocated now.
static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator with unchanged arguments.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's guarantees are those that `System` requires, and the arguments are
        // unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's guarantees are those that `System` requires, and the arguments are
        // unchanged.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

const POINTS: u32 = 24;
const LANES: u32 = 4;
/// Number of polls for which each screen is shown.
const POLLS: u64 = 400;
/// Number of rounds through all screens; in the first few, caches and histories fill up.
const ROUNDS: u64 = 16;
const WARM: u64 = 3;
const INTERVAL: Duration = Duration::from_millis(400);
/// Room for a text that is a digit longer, or a queue that has doubled: far less than a byte per
/// poll.
const SLACK: usize = 16 << 10;

/// A process with threads and tasks that live for a few polls.
struct Restless {
    snapshot: Snapshot,
    polls: u64,
}

impl Restless {
    fn new() -> Self {
        let mut snapshot = Synthetic::new().poll().expect("it always can");
        let point = |id: u32| Point {
            id,
            name: format!("part{id}"),
            file: "src/work.rs".into(),
            line: id,
            ..Point::default()
        };
        snapshot.points = (0..POINTS).map(point).collect();
        snapshot.records.clear();
        Self { snapshot, polls: 0 }
    }
}

impl Source for Restless {
    fn picture(&mut self) -> Result<Snapshot> {
        self.polls += 1;
        let (poll, snapshot) = (self.polls, &mut self.snapshot);
        snapshot.elapsed_ticks += 1_000_000_000;
        snapshot.taken_unix_ns += 400_000_000;
        let lane = |id: u32| {
            // A new thread every few polls.
            let life = poll / (5 + u64::from(id));
            Lane {
                id,
                kind: if poll % 11 == u64::from(id) { LaneKind::Ended } else { LaneKind::Live },
                tid: 1000 + (life % 30_000) as u32,
                name: format!("thread {}", life % 1000),
                records_written: 100 * poll,
                switches: poll,
                ..Lane::default()
            }
        };
        snapshot.lanes = (0..LANES).map(lane).collect();
        for (id, point) in (0..).zip(&mut snapshot.points) {
            point.resets = (poll / (100 + id)) as u32;
            let is_off = poll / 50 % u64::from(POINTS) == id;
            point.state = if is_off { PointState::Off } else { PointState::On };
        }
        snapshot.losses[Loss::BeginsRefused] = poll / 3;
        snapshot.losses[Loss::LanesOverflowed] = poll / 7;
        let cell = |point: u32, lane: u32| {
            let low = 480 << (poll.wrapping_add(u64::from(point)) % 7);
            let bucket = bucket_of(low);
            let count = 1 + poll % 100;
            let stats = Stats {
                count,
                exclusive: low * count,
                min: low,
                max: low + bucket.width,
                ..Stats::default()
            };
            let histogram = vec![Bucket { count, ..bucket }];
            Arc::new(Cell { point, lane, stats, histogram, ..Cell::default() })
        };
        snapshot.cells =
            (0..POINTS).flat_map(|point| (0..LANES).map(move |lane| cell(point, lane))).collect();
        Ok(snapshot.clone())
    }

    fn add_records(&mut self, snapshot: &mut Snapshot) {
        let poll = self.polls;
        let record = |place: u64| Record {
            lane: (place % u64::from(LANES)) as u32,
            point: (place % u64::from(POINTS)) as u32,
            start: snapshot.elapsed_ticks - 10_000 * (place + 1),
            span: 5_000 * (1 + poll % 3),
            exclusive: 4_000,
            depth: (poll / 10 % 4) as u32,
            // Tasks that appear only once.
            context: if place.is_multiple_of(2) { 0 } else { (7 * poll + place) as u32 },
        };
        snapshot.records = (0..40).map(record).collect();
    }
}

#[test]
fn hours_of_polls_leave_nothing_behind() {
    let mut now = Instant::now();
    let mut app = App::new(Options::default(), Box::new(Machine::default()), now);
    app.watch(Box::new(Restless::new()), now);
    let mut terminal = Terminal::new(TestBackend::new(100, 30)).expect("it is only memory");
    let area = terminal.get_frame().area();
    let mut held = Vec::with_capacity(ROUNDS as usize);
    for round in 0..ROUNDS {
        // The keys take a baseline now and then; the table comes last.
        for key in "2345b6\u{1b}sjk1".chars() {
            let code = if key == '\u{1b}' { KeyCode::Esc } else { KeyCode::Char(key) };
            app.key(KeyEvent::from(code), now);
            let polls = if key.is_ascii_digit() { POLLS } else { 1 };
            for poll in 0..polls {
                now += INTERVAL;
                app.poll(now);
                view::settle(&mut app, area, now);
                if poll % 40 == 0 {
                    terminal.draw(|frame| view::draw(frame, &app)).expect("only memory");
                }
            }
        }
        held.push(HELD.load(Relaxed));
        assert!(round == 0 || !app.common.log.entries().is_empty(), "there is much to tell");
    }
    let hours = INTERVAL.as_secs() as f64 + INTERVAL.subsec_millis() as f64 / 1e3;
    let hours = hours * (ROUNDS * 6 * POLLS) as f64 / 3600.0;
    assert!(hours > 4.0, "{hours}");
    let warm = held[WARM as usize..].iter().min().expect("there are rounds after it");
    let end = held.last().expect("there are rounds");
    assert!(*end <= warm + SLACK, "grows: {held:?}");
}

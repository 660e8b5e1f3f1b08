//! Measures the cost of a frame on every screen, without reading the segment: a thousand points and
//! sixty-four threads, all with new measurements since the last poll, in a terminal of 130 x 40. A
//! frame folds a snapshot into figures, sorts the rows and draws the screen. The limit is ten
//! milliseconds.
//!
//! `cargo bench -p pfp-top --bench frame`
//!
//! Times are the CPU time of this thread. Other work on the machine does not count, except that it
//! evicts cache lines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use crossterm::event::{KeyCode, KeyEvent};
use pfp_model::columns::Column;
use pfp_model::columns::sorting::Sorting;
use pfp_read::snapshot::{Bucket, Cell, Lane, Point, Record, Snapshot, Stats};
use pfp_read::source::Source;
use pfp_read::source::synthetic::{Synthetic, bucket_of};
use pfp_remote::Machine;
use pfp_top::app::App;
use pfp_top::common::{Options, Screen};
use pfp_top::view;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const POINTS: u32 = 1_000;
const LANES: u32 = 64;
/// Average number of lanes on which a point has measured: some points are used by one thread, some
/// by all.
const LANES_OF_A_POINT: u32 = 8;
/// Records in the ring of a lane.
const RECORDS: u64 = 1_000;
const TICKS_BETWEEN_POLLS: u64 = 100_000_000;
const FRAMES: usize = 60;
const BAR: Duration = Duration::from_millis(10);

/// A process in which every point measures on its lanes between two polls.
struct Busy {
    /// Two snapshots, used in turn. The cells of a snapshot are written again once no reader holds
    /// them, as in a live source.
    next: [Snapshot; 2],
    polls: u64,
}

impl Busy {
    fn new(lanes_of_a_point: u32) -> Self {
        let mut snapshot = Synthetic::new().poll().expect("it always can");
        let point = |id| Point {
            id,
            name: format!("part{}.region{id}", id % 10),
            file: "src/work.rs".into(),
            line: id,
            ..Point::default()
        };
        snapshot.points = (0..POINTS).map(point).collect();
        let lane =
            |id| Lane { id, tid: 5000 + id, name: format!("worker {id}"), ..Lane::default() };
        snapshot.lanes = (0..LANES).map(lane).collect();
        let cell = |point, lane| {
            // Four octaves, every bucket in use.
            let mut histogram = Vec::new();
            let mut low = 480_u64 << (point % 7);
            while histogram.len() < 128 {
                let bucket = bucket_of(low);
                low = bucket.low + bucket.width;
                histogram.push(Bucket { count: 7, ..bucket });
            }
            let (min, max) = (histogram[0].low, low);
            let stats = Stats { count: 900, exclusive: 900_000, min, max, ..Stats::default() };
            Arc::new(Cell { point, lane, stats, histogram, ..Cell::default() })
        };
        let cells = || {
            let of_point = |point: u32| {
                let mut lanes: Vec<u32> = (0..lanes_of_a_point)
                    .map(|place| (point * 7 + place * LANES / lanes_of_a_point) % LANES)
                    .collect();
                lanes.sort_unstable();
                lanes.into_iter().map(move |lane| cell(point, lane))
            };
            (0..POINTS).flat_map(of_point).collect()
        };
        let with = |cells| Snapshot { cells, ..snapshot.clone() };
        Self { next: [with(cells()), with(cells())], polls: 0 }
    }
}

impl Source for Busy {
    fn picture(&mut self) -> Result<Snapshot> {
        self.polls += 1;
        self.next.swap(0, 1);
        let snapshot = &mut self.next[0];
        snapshot.elapsed_ticks = self.polls * TICKS_BETWEEN_POLLS;
        for lane in &mut snapshot.lanes {
            lane.records_written = RECORDS * (self.polls + 1);
            lane.switches = 20 * self.polls;
        }
        for cell in &mut snapshot.cells {
            let stats = &mut Arc::make_mut(cell).stats;
            // All loads differ, and their order changes with every poll.
            let share = (u64::from(chance(key_of(stats), self.polls)) % 100) + 1;
            stats.count += share;
            stats.exclusive += 1_000 * share;
        }
        Ok(snapshot.clone())
    }

    fn add_records(&mut self, snapshot: &mut Snapshot) {
        let length = TICKS_BETWEEN_POLLS / RECORDS;
        let first = snapshot.elapsed_ticks.saturating_sub(TICKS_BETWEEN_POLLS);
        for lane in 0..LANES {
            // Ten records nest inside each other, as regions do.
            snapshot.records.extend((0..RECORDS).map(|place| {
                let is_outer = place % 10 == 9;
                let start = first + (if is_outer { place - 9 } else { place }) * length;
                Record {
                    lane,
                    point: (lane * 15 + place as u32 % 100) % POINTS,
                    start,
                    span: if is_outer { 10 * length } else { length - 100 },
                    exclusive: length / 2,
                    depth: u32::from(!is_outer),
                    context: 0,
                }
            }));
        }
    }
}

fn key_of(stats: &Stats) -> u64 {
    stats.count.wrapping_mul(31).wrapping_add(stats.min)
}

/// A pseudo-random number that is the same in every run.
fn chance(key: u64, poll: u64) -> u32 {
    (key.wrapping_add(poll).wrapping_mul(6_364_136_223_846_793_005) >> 33) as u32
}

/// The time that this thread has run.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live `timespec` of our own, valid for the kernel's write.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A source that counts the time it spends making snapshots, so that the bench can subtract it.
/// `shm-layout/benches/poll.rs` measures the reader of a live process.
struct Prepared(Busy, std::rc::Rc<std::cell::Cell<Duration>>);

impl Prepared {
    fn timed<T>(&mut self, work: impl FnOnce(&mut Busy) -> T) -> T {
        let start = thread_time();
        let done = work(&mut self.0);
        self.1.set(self.1.get() + (thread_time() - start));
        done
    }
}

impl Source for Prepared {
    fn picture(&mut self) -> Result<Snapshot> {
        self.0.picture()
    }

    fn poll(&mut self) -> Result<Snapshot> {
        self.timed(Source::poll)
    }

    fn add_records(&mut self, snapshot: &mut Snapshot) {
        self.timed(|busy| busy.add_records(snapshot));
    }
}

fn main() {
    println!(
        "{POINTS} points, {LANES} threads, all changed; 130 x 40; CPU time, median of {FRAMES}"
    );
    println!("{:<34} {:>9} {:>9} {:>9} {:>9}", "screen", "fold", "draw", "frame", "worst");
    let cases: [(&str, &str, Column); 9] = [
        ("Points by load", "1", Column::Load),
        ("Points by p99", "1", Column::P99),
        ("Points by name", "1", Column::Name),
        ("Detail", "2", Column::Load),
        ("Threads", "3", Column::Load),
        ("Threads, one opened", "3d", Column::Load),
        ("Timeline", "4", Column::Load),
        ("Diff", "b5", Column::Load),
        ("Log", "6", Column::Load),
    ];
    for lanes in [LANES_OF_A_POINT, LANES] {
        for (name, keys, column) in cases {
            let frames = measure(keys, column, lanes);
            print(&format!("{name}, {lanes} lanes each"), frames);
        }
    }
}

/// The times of folding and of drawing, for each frame.
fn measure(keys: &str, column: Column, lanes: u32) -> Vec<[Duration; 2]> {
    let mut now = Instant::now();
    let options = Options { sorting: Sorting::by(column), ..Options::default() };
    let mut app = App::new(options, Box::new(Machine::default()), now);
    let aside = std::rc::Rc::<std::cell::Cell<Duration>>::default();
    app.watch(Box::new(Prepared(Busy::new(lanes), aside.clone())), now);
    let mut terminal = Terminal::new(TestBackend::new(130, 40)).expect("it is only memory");
    let area = terminal.get_frame().area();
    view::settle(&mut app, area, now);
    app.poll(now);
    for key in keys.chars() {
        let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
        app.key(KeyEvent::from(code), now);
    }
    // Typing keeps the rows in place for a while; skip that time.
    now += Duration::from_secs(5);
    let mut frame = || {
        now += Duration::from_millis(100);
        let (start, before) = (thread_time(), aside.get());
        app.poll(now);
        view::settle(&mut app, area, now);
        let folded = thread_time();
        terminal.draw(|frame| view::draw(frame, &app)).expect("it is only memory");
        let drawn = thread_time();
        [folded - start - (aside.get() - before), drawn - folded]
    };
    for _ in 0..10 {
        frame();
    }
    let frames = (0..FRAMES).map(|_| frame()).collect();
    let screen = match keys.chars().rfind(|key| *key != 'd') {
        Some('2') => Screen::Detail,
        Some('3') => Screen::Threads,
        Some('4') => Screen::Timeline,
        Some('5') => Screen::Diff,
        Some('6') => Screen::Log,
        _ => Screen::Points,
    };
    assert_eq!(app.screen, screen, "the keys lead elsewhere now");
    frames
}

fn print(name: &str, mut frames: Vec<[Duration; 2]>) {
    let median = |of: &dyn Fn(&[Duration; 2]) -> Duration, frames: &mut Vec<[Duration; 2]>| {
        frames.sort_by_key(of);
        of(&frames[frames.len() / 2])
    };
    let ms = |time: Duration| format!("{:.2}ms", time.as_secs_f64() * 1e3);
    let fold = median(&|f| f[0], &mut frames);
    let draw = median(&|f| f[1], &mut frames);
    let both = median(&|f| f[0] + f[1], &mut frames);
    let worst = frames.last().map_or(both, |f| f[0] + f[1]);
    let verdict = if both > BAR { "  over the bar" } else { "" };
    let [fold, draw, both, worst] = [fold, draw, both, worst].map(ms);
    println!("{name:<34} {fold:>9} {draw:>9} {both:>9} {worst:>9}{verdict}");
}

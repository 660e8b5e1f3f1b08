//! A process behind a connection that transfers only the needed parts: every screen looks as for a
//! local process.

use anyhow::Result;

use super::*;
use crate::snapshot::Extent;
use crate::source::Interest;
use crate::summing::Summing;

const SIZE: (u16, u16) = (120, 30);

/// A made-up process that advances when the test tells it to, and whose last message the test can
/// read.
#[derive(Clone, Default)]
struct Line {
    now: Rc<RefCell<Option<Snapshot>>>,
    sent: Rc<RefCell<Option<Snapshot>>>,
    is_far: bool,
    /// Whether the connection delivers the previous snapshot again.
    is_silent: Rc<std::cell::Cell<bool>>,
    /// Whether the connection refuses a snapshot with all figures.
    is_narrow: Rc<std::cell::Cell<bool>>,
    summing: Rc<RefCell<Summing>>,
    looking: Interest,
}

impl Source for Line {
    fn look_at(&mut self, looking: Interest) {
        self.looking = looking;
    }

    fn picture(&mut self) -> Result<Snapshot> {
        if self.is_silent.get() {
            return Ok(self.sent.borrow().clone().expect("it has spoken"));
        }
        let all = self.now.borrow().clone().expect("it is there");
        let snapshot = match self.looking.sight.extent {
            Extent::All if self.is_far && self.is_narrow.get() => anyhow::bail!("too many figures"),
            Extent::All => all,
            _ if !self.is_far => all,
            _ => self.summing.borrow_mut().sum(&all, &self.looking.sight),
        };
        Ok(self.sent.borrow_mut().insert(snapshot).clone())
    }
}

/// One process, watched both locally and over a connection.
struct Both {
    made: Synthetic,
    line: Line,
    apps: [App; 2],
    now: Instant,
}

impl Both {
    fn new() -> Self {
        let (now, mut made) = (Instant::now(), Synthetic::new());
        // Points for which the table shows more than sums.
        made.snapshot_mut().points[4].file = "openmp".into();
        made.snapshot_mut().points[4].line = 0;
        made.snapshot_mut().usage =
            Some(Usage { cpu_ns: 0, memory_bytes: 1 << 20, threads: 3, cpus: 4 });
        let open = |point| Open { point, start: 5, on_cpu: Some(3) };
        made.snapshot_mut().lanes[1].open = vec![open(4), open(5)];
        let line = Line::default();
        *line.now.borrow_mut() = Some(made.poll().unwrap());
        let apps = [true, false].map(|is_far| {
            let mut app = App::new(Options::default(), Box::new(Stage::default()), now);
            let sent = if is_far { Rc::clone(&line.sent) } else { Rc::default() };
            app.watch(Box::new(Line { is_far, sent, ..line.clone() }), now);
            app
        });
        let mut both = Self { made, line, apps, now };
        both.wait();
        both.wait();
        both
    }

    fn wait(&mut self) {
        self.now += Duration::from_secs(2);
        *self.line.now.borrow_mut() = Some(self.made.poll().unwrap());
        for app in &mut self.apps {
            app.poll(self.now);
        }
    }

    fn press(&mut self, keys: &str) {
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                key => KeyCode::Char(key),
            };
            for app in &mut self.apps {
                app.key(code.into(), self.now);
            }
        }
    }

    /// Checks that both screens show the same text, and returns it.
    fn check(&mut self, why: &str) -> String {
        let [far, near] = [0, 1].map(|app| text(&drawn_at(&mut self.apps[app], self.now, SIZE)));
        assert_eq!(far, near, "{why}");
        far
    }

    /// The names of the points in the last message: those sent whole, those with the figures of the
    /// table, and those with their loads only.
    fn sent(&self) -> [Vec<String>; 3] {
        let sent = self.line.sent.borrow();
        let snapshot = sent.as_ref().unwrap();
        let summed = snapshot.summed.as_ref().expect("sums");
        let (mut whole, mut shown, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for point in &snapshot.points {
            let cells = || snapshot.cells.iter().filter(|cell| cell.point == point.id);
            let has_histogram = cells().any(|cell| !cell.histogram.is_empty());
            let list = match summed.left_out.contains(&point.id) {
                true => {
                    assert!(cells().all(|cell| cell.stats.inclusive == 0), "{}", point.name);
                    &mut left_out
                }
                false if has_histogram => &mut whole,
                false => &mut shown,
            };
            list.push(point.name.clone());
        }
        [whole, shown, left_out]
    }
}

#[test]
fn every_screen_looks_as_for_a_local_process() {
    let mut both = Both::new();
    both.check("the table");
    let keys = "/io\n|\x1b|/thread:pack\n|\x1b|/!thread:reader\n|\x1b|/thr>1\n|\x1b|/load>5 io\n|\
                \x1b|2|jj|H|k|\x1b|/domain:openmp\n|2|1|\x1b|4|1|6|8|7|5|1|>>>>|IP|\x1b|1";
    for keys in keys.split('|') {
        both.press(keys);
        both.check(&format!("{keys:?}, at once"));
        for poll in 0..2 {
            both.wait();
            both.check(&format!("{keys:?}, poll {poll}"));
        }
    }
}

/// The threads' figures from before the screen was shown are unknown.
#[test]
fn thread_figures_begin_when_the_screen_is_shown() {
    let mut both = Both::new();
    both.press("3d");
    for _ in 0..40 {
        both.wait();
    }
    both.check("the threads and the points of one");
    both.press("1");
    both.check("the table");
}

#[test]
fn only_needed_figures_are_sent() {
    let mut both = Both::new();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let [whole, shown, left_out] = both.sent();
    assert!(whole.is_empty() && left_out.is_empty() && shown.len() == 9, "{whole:?} {left_out:?}");

    both.press("/io\n");
    both.wait();
    let [whole, shown, left_out] = both.sent();
    assert_eq!((whole, shown), (names(&[]), names(&["io.parse", "io.read", "io.crc"])));
    assert_eq!(left_out.len(), 6);
    // The viewer itself applies filters on a rate; the other terms are sent.
    both.press("/ load>100\n");
    both.wait();
    assert_eq!(both.sent()[1].len(), 3);
    both.press("\x1b");
    both.wait();
    assert_eq!(both.sent()[1].len(), 9, "they are back");

    // The point on the Detail screen is sent whole and, after `j`, the next point.
    both.press("/io\n");
    for keys in ["2", "j"] {
        both.press(keys);
        let shown = both.apps[0].common.selected().unwrap().name();
        assert_eq!(both.sent()[0], [shown]);
        both.wait();
        assert_eq!(both.sent()[0].len(), 1);
    }
    let sent = both.line.sent.borrow().clone().unwrap();
    let selected = both.apps[0].common.selected;
    assert!(!sent.edges.is_empty());
    let is_its = |edge: &Edge| Some(edge.point) == selected || edge.caller == selected;
    assert!(sent.edges.iter().all(is_its));

    // These screens need only the loads.
    for keys in ["4", "6"] {
        both.press(keys);
        both.wait();
        assert_eq!(both.sent()[2].len(), 9, "{keys}");
    }
    both.press("3");
    both.wait();
    let [whole, shown, left_out] = both.sent();
    assert!(whole.is_empty() && left_out.is_empty() && shown.len() == 9);
    assert!(both.line.sent.borrow().as_ref().unwrap().edges.is_empty());
}

#[test]
fn figures_still_to_come_are_not_shown_as_zero() {
    let mut both = Both::new();
    both.press("/io\n");
    both.wait();
    both.line.is_silent.set(true);
    both.press("\x1b");
    let table = text(&drawn_at(&mut both.apps[0], both.now, SIZE));
    let row = table.lines().find(|line| line.contains("lz.compress")).expect("it has a row");
    assert!(row.contains(" - "), "{row}");
    assert!(!row.contains(" 0ns"), "{row}");
    let place = both.apps[0].common.order.iter().position(|id| *id == 4).unwrap();
    both.press(&("k".repeat(9) + &"j".repeat(place) + "\n"));
    let detail = text(&drawn_at(&mut both.apps[0], both.now, SIZE));
    assert!(detail.contains("Slow connection: ") && detail.contains("Load, "), "{detail}");
}

#[test]
fn the_reason_why_all_figures_cannot_come_is_in_the_log() {
    let mut both = Both::new();
    both.line.is_narrow.set(true);
    both.press("b");
    both.press("6");
    let log = text(&drawn_at(&mut both.apps[0], both.now, SIZE));
    assert!(log.contains("! too many figures"), "{log}");
    both.press("1");
    both.wait();
    let table = text(&drawn_at(&mut both.apps[0], both.now, SIZE));
    assert!(table.contains("LIVE") && table.contains("lz.compress"), "{table}");
}

//! A point's rate is its measurements since the last reset, divided by the time since then. The
//! test checks the rate in every kind of file: a snapshot by the program, a snapshot by the viewer,
//! a copy of the segment, a recording, and exports of these. It compares them with the program's
//! counts and the test's own clock.

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use pfp_tests::os::{signal, wall};
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::{Target, wait_for};
use serde_json::Value;

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
/// Running time of the program before the resets.
const BEFORE: Duration = Duration::from_millis(1500);
/// Approximate running time after the resets.
const AFTER: Duration = Duration::from_millis(400);

fn good(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A program whose points were reset after it had run for a while: `own` by itself, `others` by a
/// viewer, and `never` not at all.
struct Reset {
    place: Place,
    target: Target,
    /// Times before and after the creation of the segment.
    started: [Duration; 2],
    /// Times before the first reset, and after the last.
    reset: [Duration; 2],
    /// Number of measurements, since the resets, of each point that was reset.
    since: u64,
    /// Number of measurements of the point that was not reset.
    all: u64,
}

const NAMES: [&str; 3] = ["own", "others", "never"];

impl Reset {
    fn new() -> Self {
        let place = Place::new();
        let early = wall();
        let mut target = place.start(TARGET, &["reset"]);
        target.reach("measured");
        let started = [early, wall()];
        let mut this = Self { place, target, started, reset: [early; 2], since: 0, all: 0 };
        let calls = this.measure(BEFORE);
        let early = wall();
        this.target.tell("reset");
        this.target.reach("measured");
        this.pfp_top(&["reset", "others", "-p", &this.pid()]);
        this.reset = [early, wall()];
        this.since = this.measure(AFTER);
        this.all = calls + this.since;
        this
    }

    /// Measures all points for about this long; returns how often each was measured.
    fn measure(&mut self, time: Duration) -> u64 {
        let (start, mut calls) = (Instant::now(), 0);
        while start.elapsed() < time {
            self.target.tell("measure");
            self.target.reach("measured");
            calls += 50;
        }
        calls
    }

    fn pid(&self) -> String {
        self.target.pid().to_string()
    }

    fn path(&self, name: &str) -> String {
        self.place.path(name).to_str().expect("it is plain text").to_owned()
    }

    #[track_caller]
    fn pfp_top(&self, arguments: &[&str]) -> String {
        good(&self.place.pfp_top(arguments))
    }

    /// Takes a snapshot in each form; returns the files, with the times before and after each.
    fn snapshots(&mut self) -> Vec<(String, [Duration; 2])> {
        let mut all = Vec::new();
        for (name, how) in [("a.json", "snapshot"), ("a.pfp", "save-raw"), ("b.json", "saved")] {
            let (path, early) = (self.path(name), wall());
            if how == "saved" {
                self.target.tell(&format!("save {path}"));
                self.target.reach("measured");
            } else {
                self.pfp_top(&[how, "-p", &self.pid(), "-o", &path]);
            }
            all.push((path, [early, wall()]));
        }
        all
    }

    /// Bounds of a point's rate, by the test's own counts and clock.
    fn rates(&self, name: &str, taken: [Duration; 2]) -> (f64, f64) {
        let (count, from) = match name {
            "never" => (self.all, self.started),
            _ => (self.since, self.reset),
        };
        let of = |time: Duration| count as f64 / time.as_secs_f64();
        // The clock's rate was measured in that short time, which adds an error of up to a
        // thousandth.
        (of(taken[1] - from[0]) * 0.999, of(taken[0].saturating_sub(from[1])) * 1.001)
    }

    #[track_caller]
    fn check(&self, name: &str, rate: &Value, taken: [Duration; 2]) {
        let (least, most) = self.rates(name, taken);
        let rate = rate.as_f64().unwrap_or(f64::NAN);
        assert!((least..=most).contains(&rate), "{name}: {rate}, not {least} to {most}");
    }
}

/// Parses CSV with a title line into objects. No field is quoted here.
fn csv(text: &str) -> Vec<Value> {
    let mut lines = text.lines().map(|line| line.split(','));
    let titles: Vec<&str> = lines.next().expect("titles").collect();
    let rows = lines.map(|fields| {
        let fields = titles.iter().zip(fields).map(|(&title, field)| {
            let value = field.parse::<f64>().ok().map_or(Value::from(field), Value::from);
            (title.to_owned(), value)
        });
        Value::Object(fields.collect())
    });
    rows.collect()
}

#[track_caller]
fn row<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    let is_it = |row: &&Value| row["point"] == name || row["name"] == name;
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {rows:?}"))
}

#[test]
fn rates_and_loads_are_since_the_reset_wherever_a_snapshot_goes() {
    let mut reset = Reset::new();
    let other = Reset::new().snapshots_kept();
    for (path, taken) in reset.snapshots() {
        // First by thread, then summed over the threads.
        for more in [&[][..], &["--per-thread"]] {
            let all = [&["export", "csv", &path][..], more].concat();
            let rows = csv(&reset.pfp_top(&all));
            for name in NAMES {
                let row = row(&rows, name);
                reset.check(name, &row["calls_per_second"], taken);
                // The load is computed from the same time, by another formula.
                let rate = row["calls_per_second"].as_f64().expect("checked");
                let load = rate * row["mean_ns"].as_f64().expect("it measured") / 1e9;
                let found = row["load"].as_f64().unwrap_or(f64::NAN);
                assert!((found / load - 1.0).abs() < 1e-6, "{path} {name}: {found} {load}");
            }
        }
        let rows = csv(&reset.pfp_top(&["open", "--once", "--csv", &path]));
        let table = reset.pfp_top(&["open", "--once", "--json", &path]);
        let table: Value = serde_json::from_str(&table).expect("JSON");
        let metrics = reset.pfp_top(&["export", "openmetrics", &path]);
        for name in NAMES {
            reset.check(name, &row(&rows, name)["rate_per_s"], taken);
            let row = row(table["points"].as_array().expect("points"), name);
            reset.check(name, &row["rate_per_s"], taken);
            let is_load = |line: &&str| {
                line.starts_with("pfp_load{") && line.contains(&format!("point=\"{name}\""))
            };
            let load = metrics.lines().find(is_load).expect("its load").rsplit(' ').next();
            let load: f64 = load.and_then(|load| load.parse().ok()).expect("a number");
            let expected = row["load_cpus"].as_f64().expect("a load");
            assert!((load / expected - 1.0).abs() < 1e-6, "{path} {name}: {load} {expected}");
        }
        // The file is the newer side of a comparison first, and then the older side.
        for (side, files) in [("now", [&other.1, &path]), ("before", [&path, &other.1])] {
            let report = reset.pfp_top(&["diff", files[0], files[1], "--json"]);
            let report: Value = serde_json::from_str(&report).expect("JSON");
            for name in NAMES {
                let row = row(report["points"].as_array().expect("points"), name);
                reset.check(name, &row[side]["per_second"], taken);
                for side in ["before", "now"] {
                    assert!(row[side]["load"].as_f64().is_some_and(|load| load > 0.0), "{row}");
                }
            }
        }
    }
    drop(other);
}

#[test]
fn a_window_with_a_reset_has_a_rate_and_is_judged() {
    let mut reset = Reset::new();
    let [(first, _), ..] = &reset.snapshots()[..] else { panic!("no snapshot") };
    // Reset the points again, in the window between the two snapshots.
    let (early, count) = (wall(), reset.since);
    reset.target.tell("reset");
    reset.target.reach("measured");
    reset.pfp_top(&["reset", "others", "-p", &reset.pid()]);
    reset.reset = [early, wall()];
    reset.since = reset.measure(AFTER);
    reset.all += reset.since;
    let (second, early) = (reset.path("second.json"), wall());
    reset.pfp_top(&["snapshot", "-p", &reset.pid(), "-o", &second]);
    let taken = [early, wall()];
    assert!(count > 0);
    let report = reset.pfp_top(&["diff", first, &second, "--json"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    for name in ["own", "others"] {
        let row = row(report["points"].as_array().expect("points"), name);
        reset.check(name, &row["now"]["per_second"], taken);
        assert!(row["now"]["load"].as_f64().is_some_and(|load| load > 0.0), "{row}");
    }
    // `gate` judges several runs by every requested figure, for all points.
    let gate = ["gate", "--json", "--max-regress", "load=900%,rate=99%", "--baseline"];
    let other = Reset::new().snapshots_kept();
    let output = reset.place.pfp_top(&[&gate[..], &[&second, "--", &other.1]].concat());
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: Value = serde_json::from_str(&report).unwrap_or_else(|_| {
        panic!("{report}{}", String::from_utf8_lossy(&output.stderr));
    });
    assert_eq!(report["too_few"].as_array().map(Vec::len), Some(0), "{report}");
    for name in NAMES {
        let rows = report["gates"].as_array().expect("rows").iter();
        assert_eq!(
            rows.filter(|row| row["point"] == name || row["name"] == name).count(),
            2,
            "{report}"
        );
    }
    drop(other);
}

impl Reset {
    /// Takes the snapshots, and returns the path of one. The file exists as long as `self`.
    fn snapshots_kept(mut self) -> (Self, String) {
        let path = self.snapshots().swap_remove(0).0;
        (self, path)
    }
}

#[test]
fn a_recording_has_the_time_of_each_reset() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["reset"]);
    target.reach("measured");
    let (pid, file) = (target.pid().to_string(), place.path("a.pfprec"));
    let path = file.to_str().expect("it is plain text");
    let mut recorder = place.command(pfp_top());
    recorder.args(["record", "-i", "50ms", "-p", &pid, "-o", path]).stderr(Stdio::null());
    let mut recorder = recorder.spawn().expect("pfp-top starts");
    wait_for("the recording", || file.exists());
    let mut reset = Reset {
        place,
        target,
        started: [Duration::ZERO; 2],
        reset: [Duration::ZERO; 2],
        since: 0,
        all: 0,
    };
    reset.measure(AFTER);
    let early = wall();
    reset.target.tell("reset");
    reset.target.reach("measured");
    reset.pfp_top(&["reset", "others", "-p", &pid]);
    reset.reset = [early, wall()];
    reset.since = reset.measure(AFTER);
    let early = wall();
    // Waits for a frame that has all measurements and is no older than `since`.
    wait_for("the last frame", || {
        let rows = csv(&reset.pfp_top(&["export", "csv", path]));
        row(&rows, "own")["calls"].as_f64() == Some(reset.since as f64)
            && row(&rows, "others")["calls"].as_f64() == Some(reset.since as f64)
    });
    signal(recorder.id(), libc::SIGINT);
    assert!(recorder.wait().expect("it is a child").success());
    let taken = [early - Duration::from_millis(60).min(early - reset.reset[1]), wall()];
    let rows = csv(&reset.pfp_top(&["export", "csv", path]));
    // A window that begins before the resets has correct rates, too.
    let window = csv(&reset.pfp_top(&["export", "csv", path, "--from", "#2"]));
    for name in ["own", "others"] {
        reset.check(name, &row(&rows, name)["calls_per_second"], taken);
        reset.check(name, &row(&window, name)["calls_per_second"], taken);
        assert!(row(&window, name)["load"].as_f64().is_some_and(|load| load > 0.0));
    }
}

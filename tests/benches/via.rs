//! Measures the cost of a connection to another machine: bytes per second at one picture per second
//! on each screen, the time to the first picture, and the viewer's CPU time with 64 machines on one
//! screen. Prints each figure with its limit. The agents run on this machine.
//!
//! `cargo bench -p pfp-tests --bench via`

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;
use std::time::{Duration, Instant};

use pfp_tests::place::{Place, pfp_top};
use pfp_tests::screen::rows;
use pfp_tests::target::wait_for;
use pfp_tests::{lacks, os};

const HUNDRED: &str = env!("CARGO_BIN_EXE_hundred");
const PLACES: usize = 64;
/// Maximum seconds until the first picture, and maximum share of a CPU.
const BARS: (f64, f64) = (0.3, 0.1);
const WARM_UP: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(10);

fn main() {
    if lacks("what a line costs", "tmux") {
        return;
    }
    for (threads, points, bar) in [(8, 100, 30.0), (64, 1000, 150.0)] {
        bytes(threads, points, "", Some(bar));
    }
    for with_others in ["--all", "--all --sum"] {
        bytes(8, 100, with_others, None);
        places(with_others);
    }
}

/// Returns a place with the viewer in its folder `bin`, and a command that runs an agent with that
/// folder in PATH and copies the agent's output to the file `bytes`.
fn near() -> (Place, String) {
    let place = Place::new();
    let bin = place.path("bin");
    fs::create_dir(&bin).expect("the folder is new");
    symlink(pfp_top(), bin.join("pfp-top")).expect("the folder is new");
    let count = place.path("count");
    let script = format!(
        "#!/bin/sh\nPATH={}:$PATH \"$@\" | tee -a {}\n",
        bin.display(),
        place.path("bytes").display()
    );
    fs::write(&count, script).expect("the folder is new");
    fs::set_permissions(&count, Permissions::from_mode(0o755)).expect("it was just made");
    let count = count.display().to_string();
    (place, count)
}

/// Measures the bytes of one agent on each screen. If `with_others` is not empty, the viewer shows
/// two agents, with these options. `bar` is the limit for each screen except the timeline, which
/// also fetches records.
fn bytes(threads: usize, points: usize, with_others: &str, bar: Option<f64>) {
    let (place, count) = near();
    let target = place.start(HUNDRED, &["far", &threads.to_string(), &points.to_string()]);
    let _ = place.segment(target.pid());
    wait_for("all threads in nearly all points", || {
        place.snapshot(&target).cells.len() >= threads * points * 9 / 10
    });
    let screen = place.screen(120, 40);
    // Both agents show the same program, so the viewer knows most names of the second one already.
    let (others, words) = match with_others {
        "" => (format!("-p {}", target.pid()), String::new()),
        options => (format!("--via '{count} env' {options}"), format!(", two places {options}")),
    };
    let start = Instant::now();
    screen.pfp_top(&format!("-i 1 --via {count} {others}"));
    screen.wait_for("the table", |text| !rows(text).is_empty());
    println!(
        "{points} points x {threads} threads{words}: first picture after {:.2} s (bar {:.2})",
        start.elapsed().as_secs_f64(),
        BARS.0
    );
    let said = || fs::metadata(place.path("bytes")).expect("the agent speaks").len();
    for (keys, what) in [
        (&[][..], "the table"),
        (&["/", "i", "o", ".", "1", "Enter"], "filtered"),
        (&["Escape", "Enter"], "a point"),
        (&["3"], "the threads"),
        (&["4"], "the timeline"),
        (&["8"], "the tree"),
    ] {
        screen.keys(keys);
        thread::sleep(WARM_UP);
        let (start, before) = (Instant::now(), said());
        thread::sleep(MEASURED);
        let rate = (said() - before) as f64 / start.elapsed().as_secs_f64();
        let bar = bar.filter(|_| what != "the timeline");
        let bar = bar.map_or(String::new(), |bar| format!(" (bar {bar:.1})"));
        println!("  {what:<12} {:>8.1} KB/s{bar}", rate / 1000.0);
    }
}

fn places(options: &str) {
    let (place, _) = near();
    let mut file = String::new();
    let programs: Vec<(Place, _)> = (0..PLACES)
        .map(|number| {
            let far = Place::new();
            let target = far.start(HUNDRED, &["far", "1", "10"]);
            let (bin, beacons) = (place.path("bin"), far.beacons().to_owned());
            writeln!(
                file,
                "PATH={}:$PATH PFP_DIR={} env N=node{number}",
                bin.display(),
                beacons.display()
            )
            .expect("a text takes it");
            (far, target)
        })
        .collect();
    fs::write(place.path("hosts"), file).expect("the folder is new");
    let screen = place.screen(120, 40);
    screen.pfp_top(&format!("-i 1 --via-file hosts {options}"));
    screen.wait_for("the table", |text| !rows(text).is_empty());
    thread::sleep(WARM_UP);
    let viewer = screen.viewer();
    let cpu = || os::process_cpu(viewer).expect("the viewer runs");
    let (start, before) = (Instant::now(), cpu());
    thread::sleep(MEASURED);
    let share = (cpu() - before).as_secs_f64() / start.elapsed().as_secs_f64();
    println!(
        "{PLACES} places of 10 points {options}: {:.2} % of a CPU (bar {:.0})",
        100.0 * share,
        100.0 * BARS.1
    );
    drop(programs);
}

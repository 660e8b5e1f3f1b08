//! Measures the viewer's CPU time at ten polls a second in a terminal of 120 x 40, watching a
//! hundred points on four threads, and watching the demo.
//!
//! `cargo bench -p pfp-tests --bench viewer`

use std::thread;
use std::time::{Duration, Instant};

use pfp_tests::place::Place;
use pfp_tests::screen::row;
use pfp_tests::{lacks, os};

/// Time to wait before measuring; the demo has started all its threads by then.
const WARM_UP: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(20);

fn main() {
    if lacks("what the viewer costs", "tmux") {
        return;
    }
    let place = Place::new();
    let target = place.start(env!("CARGO_BIN_EXE_hundred"), &[]);
    let pid = target.pid();
    for sort in ["load", "p99"] {
        let arguments = format!("-i 0.1 -p {pid} --sort {sort}");
        measure(&place, &format!("100 points, 4 threads, by {sort}"), &arguments, "io.0");
    }
    drop(target);
    measure(&place, "the demo", "demo -i 0.1", "idle");
}

/// Starts the viewer, waits for a row, and prints the share of a CPU it takes.
fn measure(place: &Place, what: &str, arguments: &str, point: &str) {
    let screen = place.screen(120, 40);
    screen.pfp_top(arguments);
    screen.wait_for("the table", |text| row(text, point).is_some());
    thread::sleep(WARM_UP);
    let viewer = screen.viewer();
    let cpu = |pid| os::process_cpu(pid).expect("the viewer runs");
    let (start, before) = (Instant::now(), cpu(viewer));
    thread::sleep(MEASURED);
    let (took, used) = (start.elapsed(), cpu(viewer) - before);
    let share = used.as_secs_f64() / took.as_secs_f64();
    println!("{what:<32} {:>6.2} % of a CPU", 100.0 * share);
}

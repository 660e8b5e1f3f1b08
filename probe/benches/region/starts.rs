//! Costs that occur once: the start of the process and of each thread, including page faults.

use std::io;
use std::process::Command;
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use pfp_bench::median;

/// Argument of a process that is started to measure itself.
const FLAG: &str = "--start";
/// Number of threads for each figure.
const THREADS: usize = 9;

/// Medians in microseconds.
pub(crate) struct Starts {
    /// The first region of a process, which makes the segment.
    pub(crate) process: f64,
    /// The first region of a thread on a lane that no thread has used before.
    pub(crate) new_lane: f64,
    /// The first region of a thread on the lane of a thread that has ended.
    pub(crate) old_lane: f64,
}

/// Starts several processes that measure themselves.
pub(crate) fn measure(processes: usize) -> io::Result<Starts> {
    let mut found = [const { Vec::new() }; 3];
    for _ in 0..processes {
        let output = Command::new(std::env::current_exe()?).arg(FLAG).output()?;
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        for (found, figure) in found.iter_mut().zip(answer.split_whitespace()) {
            found.push(figure.parse().map_err(io::Error::other)?);
        }
    }
    let [process, new_lane, old_lane] = found.map(|mut found| median(&mut found));
    Ok(Starts { process, new_lane, old_lane })
}

/// If the command line requests it, measures and does not return. Must be called before any other
/// function of pfp.
pub(crate) fn serve_if_asked() {
    if std::env::args().nth(1).is_none_or(|argument| argument != FLAG) {
        return;
    }
    let process = first_region();
    let mut new_lane = on_new_lanes();
    let mut old_lane: Vec<f64> =
        (0..THREADS).map(|_| thread::spawn(first_region).join().unwrap_or(f64::NAN)).collect();
    println!("{process} {} {}", median(&mut new_lane), median(&mut old_lane));
    std::process::exit(0);
}

/// Durations of the first regions of several threads. The threads start one after the other, and
/// none ends before the last one has begun, so that each gets a new lane.
fn on_new_lanes() -> Vec<f64> {
    let last = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        let (answers, times) = channel();
        let start = |_| {
            let (answers, last) = (answers.clone(), &last);
            scope.spawn(move || {
                let took = first_region();
                // The receiver exists until all threads have answered.
                let _ = answers.send(took);
                last.wait();
            });
            times.recv().unwrap_or(f64::NAN)
        };
        let times = (0..THREADS).map(start).collect();
        last.wait();
        times
    })
}

/// Duration of the calling thread's first region, in microseconds.
fn first_region() -> f64 {
    let start = Instant::now();
    {
        pfp::scope!("first");
    }
    start.elapsed().as_secs_f64() * 1e6
}

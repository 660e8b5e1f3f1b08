//! An ordinary program to watch: a hundred points on four threads, most of them reached a hundred
//! times a second, until its standard input ends. `tests/benches/viewer.rs` measures the viewer's
//! cost on it. With numbers as arguments, it runs that many threads, each with that many points.
//!
//! ```text
//! hundred [NAME [THREADS POINTS]]
//! ```

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use pfp::Point;

/// Pause between two rounds of a thread.
const PAUSE: Duration = Duration::from_millis(10);
const NAMES: [&str; 10] =
    ["io", "parse", "index", "sort", "pack", "cache", "net", "search", "render", "log"];

static RUNNING: AtomicBool = AtomicBool::new(true);

fn main() {
    if let Some(name) = std::env::args().nth(1) {
        pfp::set_program_name(&name);
    }
    let numbers: Vec<usize> =
        std::env::args().skip(2).map(|number| number.parse().expect("a number")).collect();
    let (threads, count, reached) = match numbers[..] {
        [threads, points] => (threads, points, points),
        // Half of a thread's points are shared with the next thread.
        _ => (4, 100, 50),
    };
    let point = |place: usize| {
        Point::new(format!("{}.{}", NAMES[place / 10 % 10], place % 10 + place / 100 * 10).leak())
    };
    let points: &[Point] = (0..count).map(point).collect::<Vec<_>>().leak();
    // The pause grows with the number of points, so that the load stays equal.
    let pause = PAUSE * (threads * reached).div_ceil(200) as u32;
    thread::scope(|scope| {
        for number in 0..threads {
            scope.spawn(move || work(number, points, reached, pause));
        }
        // Waits until standard input is closed, or fails. Nothing is sent to it.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        RUNNING.store(false, Relaxed);
    });
}

/// Runs rounds through this thread's points, nested in tens. The last of ten is reached only in
/// every 64th round.
fn work(number: usize, points: &'static [Point], reached: usize, pause: Duration) {
    pfp::register_thread(&format!("worker {number}"));
    let mut random = number as u32 + 1;
    let tens: Vec<&[Point]> = points.chunks(10).collect();
    for round in 0_u32.. {
        if !RUNNING.load(Relaxed) {
            return;
        }
        for ten in (0..reached / 10).map(|ten| tens[(2 * number + ten) % tens.len()]) {
            let _outer = ten[0].measure();
            for (place, point) in ten.iter().enumerate().skip(1) {
                if place == 9 && round % 64 != 0 {
                    continue;
                }
                let _inner = point.measure();
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                spin(100 + (random >> 16) % (200 << (place % 4)));
            }
        }
        thread::sleep(pause);
    }
}

fn spin(times: u32) {
    for time in 0..times {
        std::hint::black_box(time);
    }
}

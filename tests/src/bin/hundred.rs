//! A program of ordinary size to watch: a hundred points on four threads, most
//! of them reached a hundred times a second, until its standard input ends. What
//! the viewer costs is measured on it; see `tests/benches/viewer.rs`.
//!
//! ```text
//! hundred [NAME]
//! ```

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use pfp::Point;

const THREADS: usize = 4;
/// Points that each thread reaches, half of them also the next one.
const REACHED: usize = 50;
/// Between two rounds of a thread.
const PAUSE: Duration = Duration::from_millis(10);

/// Ten points of each name.
macro_rules! tens {
    ($($name:literal)*) => {
        [$(tens!(@ $name 0 1 2 3 4 5 6 7 8 9)),*]
    };
    (@ $name:literal $($n:literal)*) => {
        [$(Point::new(concat!($name, ".", $n))),*]
    };
}

static POINTS: [[Point; 10]; 10] =
    tens!("io" "parse" "index" "sort" "pack" "cache" "net" "search" "render" "log");

static RUNNING: AtomicBool = AtomicBool::new(true);

fn main() {
    if let Some(name) = std::env::args().nth(1) {
        pfp::set_program_name(&name);
    }
    thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || work(number));
        }
        // Nothing is ever sent; an error ends the reading just as well.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        RUNNING.store(false, Relaxed);
    });
}

/// Rounds through this thread's points, nested in tens. The last of ten is
/// reached in every 64th round only.
fn work(number: usize) {
    pfp::register_thread(&format!("worker {number}"));
    let mut random = number as u32 + 1;
    for round in 0_u32.. {
        if !RUNNING.load(Relaxed) {
            return;
        }
        for ten in (0..REACHED / 10).map(|ten| &POINTS[(2 * number + ten) % 10]) {
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
        thread::sleep(PAUSE);
    }
}

fn spin(times: u32) {
    for time in 0..times {
        std::hint::black_box(time);
    }
}

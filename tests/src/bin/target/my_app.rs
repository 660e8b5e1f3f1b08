//! The program of the README's examples, with the points that they name.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use pfp_tests::os::burn;

static RUNNING: AtomicBool = AtomicBool::new(true);

/// Works a little, until its standard input ends.
pub(crate) fn run() {
    pfp::set_program_name("my_app");
    pfp::Point::numbered(3).enable();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while RUNNING.load(Relaxed) {
                work();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        // The test sends nothing.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        RUNNING.store(false, Relaxed);
    });
}

fn work() {
    {
        pfp::scope!("io.read");
        burn(Duration::from_micros(50));
    }
    {
        pfp::scope!("parse");
        burn(Duration::from_micros(20));
        pfp::scope!("sort");
        burn(Duration::from_micros(20));
    }
    pfp::Point::numbered(3).begin_once();
    pfp::Point::numbered(3).end();
    pfp::scope!("io.write");
    burn(Duration::from_micros(10));
}

//! A rank of a parallel job with some shares of the work. It spends one unit of CPU time for each
//! share in `solve`, on two threads, and one unit in `even`. If it has more than one share, it also
//! spends one unit in `alone`.

use std::thread;
use std::time::Duration;

use pfp_tests::os::burn;
use pfp_tests::script::pause;

/// CPU time of one share: so long that the work around a region is negligible.
const SHARE: Duration = Duration::from_millis(40);

pub(crate) fn run(shares: u32) {
    pfp::init().ok();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                pfp::scope!("solve");
                burn(SHARE * shares / 2);
            });
        }
    });
    {
        pfp::scope!("even");
        burn(SHARE);
    }
    if shares > 1 {
        pfp::scope!("alone");
        burn(SHARE);
    }
    pause("done");
}

//! A rank of a parallel job, which has a share of the work: so much CPU time in `solve`,
//! on two threads, the same as every other rank in `even`, and, of a share of more than
//! one, some in `alone`.

use std::thread;
use std::time::Duration;

use pfp_tests::os::burn;
use pfp_tests::script::pause;

/// CPU time of one share. So long that what is around a region is nothing beside it.
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

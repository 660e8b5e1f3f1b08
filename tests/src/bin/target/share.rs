//! A rank of a parallel job with a share of the work. It spends `share` units of CPU time in
//! `solve`, on two threads, and one amount in `even` that is equal in all ranks; if its share
//! exceeds one, it also spends some in `alone`.

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

//! Frames: the time from the end of one to the end of the next, by the clock.
//!
//! A frame is no region: it may end while regions are open, and regions inside it are not its
//! children. Loads and threads' shares leave its time out, as they leave out a device's, so
//! that nothing is counted twice.

use std::cell::Cell;

use crate::clock::counter;
use crate::engine::elsewhere;
use crate::point::Point;

static FRAME: Point = Point::at("frame", "", 0).of_the_clock();

/// Stands in records where a device's have the number of its timer.
const NUMBER: u32 = 1;

thread_local! {
    /// When the thread's last frame ended, plus 1; 0 before the first.
    static ENDED: Cell<u64> = const { Cell::new(0) };
}

/// For [`crate::finish_frame!`].
#[doc(hidden)]
pub fn __finish_frame() {
    let now = counter::stamp();
    let before = ENDED.replace(now.wrapping_add(1));
    if before != 0 {
        let start = before.wrapping_sub(1);
        // The counter of another CPU may be behind.
        let ticks = (now.wrapping_sub(start) as i64).max(0) as u64;
        elsewhere::record_of_a_device(&FRAME, start, ticks, NUMBER);
    }
}

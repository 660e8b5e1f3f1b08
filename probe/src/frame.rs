//! Frames: the wall-clock time from the end of one frame to the end of the next.
//!
//! A frame is not a region: it may end while regions are open, and regions that run during it are
//! not its children. Loads and the shares of threads leave out the time of frames and of
//! devices, so that nothing is counted twice.

use std::cell::Cell;

use crate::clock::counter;
use crate::engine::elsewhere;
use crate::point::Point;

static FRAME: Point = Point::at("frame", "", 0).of_the_clock();

/// Number that the records of frames contain in place of a context's number.
const NUMBER: u32 = 1;

thread_local! {
    /// Counter at the end of the thread's last frame, plus 1; 0 if the thread has ended no frame.
    static ENDED: Cell<u64> = const { Cell::new(0) };
}

/// Used by [`crate::finish_frame!`].
#[doc(hidden)]
pub fn __finish_frame() {
    let now = counter::stamp();
    let before = ENDED.replace(now.wrapping_add(1));
    if before != 0 {
        let start = before.wrapping_sub(1);
        // The counter of another CPU may be behind, so the difference may be negative.
        let ticks = (now.wrapping_sub(start) as i64).max(0) as u64;
        elsewhere::record_of_a_device(&FRAME, start, ticks, NUMBER);
    }
}

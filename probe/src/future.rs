//! Futures: measured over all their polls, so that waiting is not counted.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::engine::ending::{Polls, end_poll};
use crate::engine::measure::Guard;
use crate::point::Point;

/// A future whose polls are measured; their sum is one measurement, recorded
/// when it is ready. See [`Point::measure_async`].
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct Measured<F> {
    point: &'static Point,
    polls: Polls,
    future: F,
}

impl Point {
    /// Measures a future over all its polls; the time between them is not
    /// counted. `#[pfp::function]` on an `async fn` does this.
    pub fn measure_async<F: Future>(&'static self, future: F) -> Measured<F> {
        Measured { point: self, polls: Polls::default(), future }
    }
}

impl<F: Future> Future for Measured<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is pinned with the whole and never moved out; the
        // other fields are not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        let mut part = PollPart {
            point: this.point,
            guard: ManuallyDrop::new(Guard::begin(this.point)),
            polls: &mut this.polls,
            last: true,
        };
        let polled = future.poll(context);
        // A poll that panics is the last.
        part.last = polled.is_ready();
        polled
    }
}

/// Ends the region of one poll, also when the future panics.
struct PollPart<'a> {
    point: &'static Point,
    guard: ManuallyDrop<Guard>,
    polls: &'a mut Polls,
    last: bool,
}

impl Drop for PollPart<'_> {
    fn drop(&mut self) {
        end_poll(self.point, &self.guard, self.polls, self.last);
    }
}

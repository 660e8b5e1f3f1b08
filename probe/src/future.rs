//! Futures: measured over all their polls, so that waiting is not counted.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

use pfp_shm_layout::amounts::Amounts;

use crate::Amount;
use crate::engine::ending::{Polls, end_poll};
use crate::engine::measure::Guard;
use crate::point::Point;
use crate::timed::{Timed, in_order};

/// A future whose polls are measured; their sum is one measurement, recorded
/// when it is ready, or is dropped before. See [`Point::measure_async`].
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct Measured<F> {
    polled: Polled,
    future: F,
}

/// The same with amounts. See [`Timed::measure_async`].
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct TimedMeasured<F> {
    polled: TimedPolled,
    future: F,
}

impl Point {
    /// Measures a future over all its polls; the time between them is not
    /// counted. `#[pfp::function]` on an `async fn` does this.
    pub fn measure_async<F: Future>(&'static self, future: F) -> Measured<F> {
        Measured { polled: Polled { point: self, polls: Polls::default() }, future }
    }
}

impl Timed {
    /// Measures a future over all its polls, as [`Point::measure_async`] does, with
    /// these amounts. `#[pfp::function(items = n)]` on an `async fn` does this.
    pub fn measure_async<F: Future, A: Amount, const N: usize>(
        &'static self,
        amounts: [A; N],
        future: F,
    ) -> TimedMeasured<F> {
        let (amounts, polls) = (in_order(amounts), Polls::default());
        TimedMeasured { polled: TimedPolled { timed: self, amounts, polls }, future }
    }
}

/// What the polls so far have measured; recorded when this is dropped, if none of them
/// was the last.
#[derive(Debug)]
struct Polled {
    point: &'static Point,
    polls: Polls,
}

impl Drop for Polled {
    #[inline]
    fn drop(&mut self) {
        if self.polls.wait() {
            self.polls.record(self.point, None);
        }
    }
}

/// The same with amounts.
#[derive(Debug)]
struct TimedPolled {
    timed: &'static Timed,
    amounts: Amounts,
    polls: Polls,
}

impl Drop for TimedPolled {
    #[inline]
    fn drop(&mut self) {
        if self.polls.wait()
            && let Some((point, is_rest)) = self.timed.choose_for_good(&self.amounts)
        {
            self.polls.record(point, is_rest.then_some(&self.amounts));
        }
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
        let Polled { point, polls } = &mut this.polled;
        let mut part = PollPart {
            point,
            guard: ManuallyDrop::new(Guard::begin(point)),
            polls,
            amounts: None,
            last: true,
        };
        part.poll(future, context)
    }
}

impl<F: Future> Future for TimedMeasured<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: as above.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        let TimedPolled { timed, amounts, polls } = &mut this.polled;
        let Some((point, is_rest)) = timed.choose(amounts) else { return future.poll(context) };
        let mut part = PollPart {
            point,
            guard: ManuallyDrop::new(Guard::begin(point)),
            polls,
            amounts: is_rest.then_some(&*amounts),
            last: true,
        };
        part.poll(future, context)
    }
}

/// Ends the region of one poll, also when the future panics.
struct PollPart<'a> {
    point: &'static Point,
    guard: ManuallyDrop<Guard>,
    polls: &'a mut Polls,
    /// Of a point whose cells have sums of them.
    amounts: Option<&'a Amounts>,
    last: bool,
}

impl PollPart<'_> {
    #[inline(always)]
    fn poll<F: Future>(
        &mut self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let polled = future.poll(context);
        // A poll that panics is the last.
        self.last = polled.is_ready();
        polled
    }
}

impl Drop for PollPart<'_> {
    fn drop(&mut self) {
        end_poll(self.point, &self.guard, self.polls, self.last, self.amounts);
    }
}

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
    ///
    /// All of it is one measurement, recorded with the last poll; only inclusive time is
    /// added poll by poll.
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

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is pinned with the whole and never moved out; the
        // other fields are not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        let Polled { point, polls } = &mut this.polled;
        poll_part(point, polls, None, future, context)
    }
}

impl<F: Future> Future for TimedMeasured<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: as above.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        let TimedPolled { timed, amounts, polls } = &mut this.polled;
        let Some((point, is_rest)) = timed.choose(amounts) else { return future.poll(context) };
        poll_part(point, polls, is_rest.then_some(&*amounts), future, context)
    }
}

/// Measures one poll; with amounts if the point's cells have sums of them.
#[inline(always)]
fn poll_part<F: Future>(
    point: &'static Point,
    polls: &mut Polls,
    amounts: Option<&Amounts>,
    future: Pin<&mut F>,
    context: &mut Context<'_>,
) -> Poll<F::Output> {
    let control = point.control();
    // By itself: nothing is kept of a poll that is not measured.
    if !control.enabled() {
        return future.poll(context);
    }
    // Filled where it stays, since a copy would wait for the counter.
    let guard = ManuallyDrop::new(Guard::begin_on(point, control));
    // A poll that panics is the last.
    let mut part = PollPart { point, guard: &guard, polls, amounts, last: true };
    let polled = future.poll(context);
    part.last = polled.is_ready();
    polled
}

/// Ends the region of one poll, also when the future panics.
struct PollPart<'a> {
    point: &'static Point,
    guard: &'a Guard,
    polls: &'a mut Polls,
    amounts: Option<&'a Amounts>,
    last: bool,
}

impl Drop for PollPart<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.guard.tag() == 0 {
            return;
        }
        // Ready at once is a region like any other.
        match self.amounts {
            None if self.last && !self.polls.wait() => self.guard.end_on(),
            Some(amounts) if self.last && !self.polls.wait() => self.guard.end_rest(amounts),
            amounts => end_poll(self.point, self.guard, self.polls, self.last, amounts),
        }
    }
}

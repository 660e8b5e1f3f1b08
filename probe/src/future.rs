//! Futures that are measured over all their polls, so that waiting is not counted.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::amount::in_order;
use crate::engine::future::{MeteredPolled, Polled};
use crate::{Amount, MeteredPoint, Point};

/// A future whose polls are measured. The sum of the polls is recorded as one measurement when the
/// future is ready, or is dropped before that. See [`Point::measure_async`].
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct Measured<F> {
    polled: Polled,
    future: F,
}

/// A measured future with amounts; see [`MeteredPoint::measure_async`].
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct MeteredFuture<F> {
    polled: MeteredPolled,
    future: F,
}

impl Point {
    /// Measures a future over all its polls, without the time between them. `#[pfp::function]` on
    /// an `async fn` calls this.
    ///
    /// All polls are one measurement, which is recorded after the last poll; only inclusive time is
    /// added after each poll.
    pub fn measure_async<F: Future>(&'static self, future: F) -> Measured<F> {
        Measured { polled: Polled::of(self), future }
    }
}

impl MeteredPoint {
    /// Measures a future over all its polls with these amounts, like [`Point::measure_async`].
    /// `#[pfp::function(items = n)]` on an `async fn` calls this.
    pub fn measure_async<F: Future, A: Amount, const N: usize>(
        &'static self,
        amounts: [A; N],
        future: F,
    ) -> MeteredFuture<F> {
        MeteredFuture { polled: MeteredPolled::with(self, in_order(amounts)), future }
    }
}

impl<F: Future> Future for Measured<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is pinned with the whole and never moved out; the other fields are not
        // pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: `self` is pinned, so its field `future` is pinned, too.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        this.polled.poll(future, context)
    }
}

impl<F: Future> Future for MeteredFuture<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is pinned with the whole and never moved out; the other fields are not
        // pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: `self` is pinned, so its field `future` is pinned, too.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        this.polled.poll(future, context)
    }
}

//! Futures: measured over all their polls, so that waiting is not counted.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::amount::in_order;
use crate::engine::future::{MeteredPolled, Polled};
use crate::{Amount, MeteredPoint, Point};

/// A future whose polls are measured; their sum is one measurement, recorded
/// when it is ready, or is dropped before. See [`Point::measure_async`].
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
    /// Measures a future over all its polls; the time between them is not
    /// counted. `#[pfp::function]` on an `async fn` does this.
    ///
    /// All of it is one measurement, recorded with the last poll; only inclusive time is
    /// added poll by poll.
    pub fn measure_async<F: Future>(&'static self, future: F) -> Measured<F> {
        Measured { polled: Polled::of(self), future }
    }
}

impl MeteredPoint {
    /// Measures a future over all its polls, as [`Point::measure_async`] does, with
    /// these amounts. `#[pfp::function(items = n)]` on an `async fn` does this.
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
        // SAFETY: the future is pinned with the whole and never moved out; the
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

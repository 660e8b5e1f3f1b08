//! Polls of futures: each is a region, and their sum is one measurement.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

use pfp_shm_layout::amounts::Amounts;

use super::guard::Guard;
use super::polls::{Polls, end_poll};
use crate::{MeteredPoint, Point};

/// What the polls so far have measured; recorded when this is dropped, if none of them
/// was the last.
#[derive(Debug)]
pub(crate) struct Polled {
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

/// A future whose polls are measured by a point with amounts.
#[derive(Debug)]
pub(crate) struct MeteredPolled {
    metered: &'static MeteredPoint,
    amounts: Amounts,
    polls: Polls,
}

impl Drop for MeteredPolled {
    #[inline]
    fn drop(&mut self) {
        if self.polls.wait()
            && let Some((point, is_rest)) = self.metered.choose_for_good(&self.amounts)
        {
            self.polls.record(point, is_rest.then_some(&self.amounts));
        }
    }
}

impl Polled {
    pub(crate) fn of(point: &'static Point) -> Self {
        Self { point, polls: Polls::default() }
    }

    /// Polls the future, which is measured.
    #[inline(always)]
    pub(crate) fn poll<F: Future>(
        &mut self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        poll_part(self.point, &mut self.polls, None, future, context)
    }
}

impl MeteredPolled {
    pub(crate) fn with(metered: &'static MeteredPoint, amounts: Amounts) -> Self {
        Self { metered, amounts, polls: Polls::default() }
    }

    /// Polls the future, which is measured.
    #[inline(always)]
    pub(crate) fn poll<F: Future>(
        &mut self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let Self { metered, amounts, polls } = self;
        let Some((point, is_rest)) = metered.choose(amounts) else { return future.poll(context) };
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
    let mut guard = ManuallyDrop::new(Guard::empty());
    guard.begin_on(point, control);
    // A poll that panics is the last.
    let mut part = PollPart { point, guard: &mut guard, polls, amounts, last: true };
    let polled = future.poll(context);
    part.last = polled.is_ready();
    polled
}

/// Ends the region of one poll, also when the future panics.
struct PollPart<'a> {
    point: &'static Point,
    guard: &'a mut Guard,
    polls: &'a mut Polls,
    amounts: Option<&'a Amounts>,
    last: bool,
}

impl Drop for PollPart<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.guard.place() == 0 {
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

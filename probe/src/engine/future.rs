//! Polls of futures: each is a region, and their sum is one measurement.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

use pfp_shm_layout::amounts::Amounts;

use super::guard::Guard;
use super::measure;
use super::polls::{Polls, end_poll};
use crate::{MeteredPoint, Point};

/// The measurements of the polls so far. Dropping this value records them, unless the last poll has
/// recorded them.
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
        if self.polls.wait() {
            self.polls.record(self.metered.point(), Some(self.amounts));
        }
    }
}

impl Polled {
    pub(crate) fn of(point: &'static Point) -> Self {
        Self { point, polls: Polls::default() }
    }

    /// Polls the future and measures the poll.
    #[inline(always)]
    pub(crate) fn poll<F: Future>(
        &mut self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        poll_part(Guard::begin(self.point), &mut self.polls, future, context)
    }
}

impl MeteredPolled {
    pub(crate) fn with(metered: &'static MeteredPoint, amounts: Amounts) -> Self {
        Self { metered, amounts, polls: Polls::default() }
    }

    /// Polls the future and measures the poll.
    #[inline(always)]
    pub(crate) fn poll<F: Future>(
        &mut self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let Self { metered, amounts, polls } = self;
        poll_part(metered.begin_with(*amounts), polls, future, context)
    }
}

/// Polls a future, with the guard of a region that lasts as long as the poll.
#[inline(always)]
fn poll_part<F: Future>(
    guard: Guard,
    polls: &mut Polls,
    future: Pin<&mut F>,
    context: &mut Context<'_>,
) -> Poll<F::Output> {
    // A poll that is not measured leaves no part to record.
    if guard.tag() == 0 {
        return future.poll(context);
    }
    // A poll that panics is the last one.
    let mut part = PollPart { guard: ManuallyDrop::new(guard), polls, last: true };
    let polled = future.poll(context);
    part.last = polled.is_ready();
    polled
}

/// Ends the region of one poll, even if the future panics.
struct PollPart<'a> {
    guard: ManuallyDrop<Guard>,
    polls: &'a mut Polls,
    last: bool,
}

impl Drop for PollPart<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let tag = self.guard.tag();
        // If no earlier poll waits to be recorded, the last poll is a region like any other.
        match self.last && !self.polls.wait() {
            true => measure::end(tag),
            false => end_poll(tag, self.polls, self.last),
        }
    }
}

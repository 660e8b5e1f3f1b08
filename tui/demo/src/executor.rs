//! A minimal executor: it runs a few futures on the calling thread and provides pauses that they
//! can await.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

thread_local! {
    /// Pending pauses of this thread's futures: the end of each, and the waker to call then.
    static PAUSES: RefCell<Vec<(Instant, Waker)>> = const { RefCell::new(Vec::new()) };
}

/// Runs futures concurrently until all are done, and returns their outputs in the same order.
pub(crate) fn run_all<F: Future, const N: usize>(futures: [F; N]) -> [F::Output; N] {
    let mut tasks = futures.map(Task::new);
    loop {
        for task in &mut tasks {
            task.poll_if_woken();
        }
        if tasks.iter().all(|task| task.output.is_some()) {
            return tasks.map(|task| task.output.expect("all are done"));
        }
        wake_after_pause();
    }
}

/// A future that is ready after a while. The thread that polls it has to be in [`run_all`].
pub(crate) async fn pause(length: Duration) {
    let end = Instant::now() + length;
    std::future::poll_fn(|context| {
        if Instant::now() >= end {
            return Poll::Ready(());
        }
        PAUSES.with_borrow_mut(|pauses| pauses.push((end, context.waker().clone())));
        Poll::Pending
    })
    .await;
}

/// Wakes the futures whose pause is over. If no pause is over, sleeps until the next one ends or
/// another wake arrives.
fn wake_after_pause() {
    let now = Instant::now();
    let over: Vec<_> =
        PAUSES.with_borrow_mut(|pauses| pauses.extract_if(.., |(end, _)| *end <= now).collect());
    if over.is_empty() {
        pfp::scope!("idle");
        match PAUSES.with_borrow(|pauses| pauses.iter().map(|(end, _)| *end).min()) {
            Some(end) => thread::park_timeout(end - now),
            None => thread::park(),
        }
    }
    for (_, waker) in over {
        waker.wake();
    }
}

/// A future and its output, once it has one.
struct Task<F: Future> {
    future: Pin<Box<F>>,
    output: Option<F::Output>,
    woken: Arc<Woken>,
}

/// Whether a task has something to do, and the thread that will do it.
struct Woken {
    flag: AtomicBool,
    thread: Thread,
}

impl<F: Future> Task<F> {
    fn new(future: F) -> Self {
        let woken = Arc::new(Woken { flag: AtomicBool::new(true), thread: thread::current() });
        Self { future: Box::pin(future), output: None, woken }
    }

    fn poll_if_woken(&mut self) {
        // Acquire pairs with the release in `wake`, so that the future sees the waker's writes.
        if self.output.is_none() && self.woken.flag.swap(false, Ordering::Acquire) {
            let waker = Waker::from(Arc::clone(&self.woken));
            if let Poll::Ready(output) = self.future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                self.output = Some(output);
            }
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.flag.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_pass_side_by_side() {
        let begun = Instant::now();
        let nap = async |number: u64| {
            pause(Duration::from_millis(20 * number)).await;
            number
        };
        assert_eq!(run_all([nap(3), nap(1), nap(2)]), [3, 1, 2]);
        let elapsed = begun.elapsed();
        assert!(elapsed >= Duration::from_millis(60));
    }

    #[test]
    fn another_thread_may_wake() {
        let mut woken = false;
        let woken_by_other = std::future::poll_fn(move |context| {
            if std::mem::replace(&mut woken, true) {
                return Poll::Ready("woken");
            }
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake());
            Poll::Pending
        });
        assert_eq!(run_all([woken_by_other]), ["woken"]);
    }
}

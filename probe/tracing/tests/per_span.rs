//! With `per_span`, a span is one measurement, on whichever threads its future is polled.

mod apart;

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use tracing::{Instrument, info_span};

const TASKS: usize = 40;
const POLLS: usize = 25;

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {}
}

async fn work() {
    for _ in 0..POLLS {
        spin(Duration::from_micros(50));
        let mut is_first = true;
        poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        info_span!("inside").in_scope(|| ());
    }
}

#[test]
fn a_span_is_one_measurement() {
    let Some(way) = apart::way("a_span_is_one_measurement") else { return };
    let options = pfp_tracing::Options::default().per_span();
    apart::set(&way, options).expect("it is the first");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> =
            (0..TASKS).map(|_| tokio::spawn(work().instrument(info_span!("task")))).collect();
        for task in tasks {
            task.await.expect("it ends");
        }
    });
    drop(runtime);
    let stats = |name: &str| {
        let point = pfp::points().find(|point| point.name() == format!("per_span::{name}"));
        point.and_then(pfp::Point::stats).expect("it has measured")
    };
    assert_eq!(stats("inside").count, (TASKS * POLLS) as u64);
    let task = stats("task");
    assert_eq!(task.count, TASKS as u64);
    // The thread spins for a given wall time. Its CPU time is less if it was pre-empted.
    let longest = POLLS as f64 * 50e-6 * pfp::ticks_per_second();
    assert!(task.min as f64 > longest / 20.0, "{task:?}");
    assert!(task.exclusive > 0 && task.inclusive >= task.exclusive, "{task:?}");
    // A span that is leaked after its last exit is not recorded, and affects no other span.
    std::mem::forget(info_span!("task"));
    let span = info_span!("late");
    span.in_scope(|| ());
    assert!(
        pfp::points().all(|point| !point.name().ends_with("::late") || point.stats().is_none())
    );
    drop(span);
    assert_eq!(stats("late").count, 1);
}

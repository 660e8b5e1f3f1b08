//! Spans allocate nothing once their callsites are known.

mod apart;
#[path = "../../../shm-layout/tests/common/counting.rs"]
mod counting;

use counting::ALLOCATIONS;
use pfp_tracing::Options;
use tracing::{Span, info_span};

fn calls(span: &Span) {
    // A span is created, entered, exited and closed.
    let outer = info_span!("plain").entered();
    info_span!("with an amount", bytes = 7u64).in_scope(|| ());
    drop(outer);
    // A span is entered again.
    span.in_scope(|| ());
    span.clone().in_scope(|| ());
}

fn each(test: &str, options: Options) {
    let Some(way) = apart::way(test) else { return };
    apart::set(&way, options).expect("it is the first");
    let span = info_span!("again", bytes = 1u64);
    // More entries than a ring holds, so that the ring is folded in between.
    (0..5000).for_each(|_| calls(&span));
    let before = ALLOCATIONS.get();
    assert!(before > 0, "the test has made a thread and a span");
    (0..5000).for_each(|_| calls(&span));
    assert_eq!(ALLOCATIONS.get() - before, 0, "{way}");
    let counts = pfp::points().filter(|point| point.name().contains("plain") && point.line() > 0);
    assert!(counts.filter_map(pfp::Point::stats).any(|stats| stats.count == 10_000), "{way}");
}

#[test]
fn spans_allocate_nothing() {
    each("spans_allocate_nothing", Options::default());
}

#[test]
fn spans_that_are_kept_allocate_nothing() {
    let options = Options::default().amounts(["bytes"]).per_span().lifetimes();
    each("spans_that_are_kept_allocate_nothing", options);
}

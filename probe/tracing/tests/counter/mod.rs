//! Counts entries of spans independently, and compares the counts with the points.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::HashMap;
use std::sync::Mutex;

use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_core::span::Current;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Target and name of a span, its file and its line.
pub(crate) type Place = (String, String, u32);

static COUNTS: Mutex<Option<HashMap<Place, u64>>> = Mutex::new(None);

fn count(metadata: &Metadata<'_>) {
    let name = format!("{}::{}", metadata.target(), metadata.name());
    let file = metadata.file().unwrap_or("").to_owned();
    let mut counts = COUNTS.lock().unwrap();
    let counts = counts.get_or_insert_default();
    *counts.entry((name, file, metadata.line().unwrap_or(0))).or_default() += 1;
}

/// Number of entries of each place.
pub(crate) fn counts() -> HashMap<Place, u64> {
    COUNTS.lock().unwrap().clone().unwrap_or_default()
}

/// Number of measurements of each place's point.
pub(crate) fn points() -> HashMap<Place, u64> {
    let mut all = HashMap::new();
    for point in pfp::points().filter(|point| point.line() > 0) {
        let count = point.stats().map_or(0, |stats| stats.count);
        if count > 0 {
            let place = (point.name().into_owned(), point.file().to_owned(), point.line());
            *all.entry(place).or_default() += count;
        }
    }
    all
}

/// Counter as a layer.
pub(crate) struct Counter;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Counter {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        count(context.metadata(id).expect("the span is there"));
    }
}

/// Counter that wraps a subscriber.
pub(crate) struct Around<S> {
    pub(crate) inner: S,
    spans: Mutex<HashMap<u64, &'static Metadata<'static>>>,
}

impl<S> Around<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, spans: Mutex::default() }
    }
}

impl<S: Subscriber> Subscriber for Around<S> {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.inner.register_callsite(metadata)
    }
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.inner.enabled(metadata)
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.inner.new_span(span);
        self.spans.lock().unwrap().insert(id.into_u64(), span.metadata());
        id
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        self.inner.record(span, values);
    }
    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.inner.record_follows_from(span, follows);
    }
    fn event(&self, event: &Event<'_>) {
        self.inner.event(event);
    }
    fn enter(&self, span: &Id) {
        count(self.spans.lock().unwrap()[&span.into_u64()]);
        self.inner.enter(span);
    }
    fn exit(&self, span: &Id) {
        self.inner.exit(span);
    }
    fn clone_span(&self, span: &Id) -> Id {
        self.inner.clone_span(span)
    }
    fn try_close(&self, span: Id) -> bool {
        self.inner.try_close(span)
    }
    fn current_span(&self) -> Current {
        self.inner.current_span()
    }
}

/// Asserts that the points have counted each entry, and that `h2` has at least this many places and
/// entries.
pub(crate) fn judge(places: usize, entries: u64) {
    let (counted, measured) = (counts(), points());
    let differing: Vec<_> = counted
        .iter()
        .map(|(place, count)| (place, count, measured.get(place).copied().unwrap_or(0)))
        .filter(|(_, count, measured)| *count != measured)
        .collect();
    assert!(differing.is_empty(), "entered and measured: {differing:#?}");
    assert_eq!(counted.len(), measured.len());
    let of_h2 = counted.iter().filter(|((name, ..), _)| name.starts_with("h2::"));
    let (found, sum) = of_h2.fold((0, 0), |(places, sum), (_, count)| (places + 1, sum + count));
    assert!(found >= places && sum >= entries, "{found} places, {sum} entries: {counted:#?}");
    println!("{} places, {} entries", counted.len(), counted.values().sum::<u64>());
}

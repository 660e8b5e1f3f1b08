//! Layers beside pfp's receive all spans and events, even while points are switched off and on.

mod apart;

use std::cell::Cell;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use pfp::Point;
use pfp_tracing::Options;
use tracing::span::{Attributes, Id};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Span, Subscriber};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::{Layer, registry};

const SWITCHES: usize = 3;

/// Numbers of spans created, entered, exited and closed, and of events.
#[derive(Debug)]
struct Counts([AtomicU64; 5]);

static OPEN: Counts = Counts([const { AtomicU64::new(0) }; 5]);
static FILTERED: Counts = Counts([const { AtomicU64::new(0) }; 5]);

impl Counts {
    fn all(&self) -> [u64; 5] {
        self.0.each_ref().map(|count| count.load(Relaxed))
    }
}

struct Counter(&'static Counts);

impl<S: Subscriber> Layer<S> for Counter {
    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.0.0[0].fetch_add(1, Relaxed);
    }
    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        self.0.0[1].fetch_add(1, Relaxed);
    }
    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        self.0.0[2].fetch_add(1, Relaxed);
    }
    fn on_close(&self, _: Id, _: Context<'_, S>) {
        self.0.0[3].fetch_add(1, Relaxed);
    }
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        self.0.0[4].fetch_add(1, Relaxed);
    }
}

thread_local! {
    /// Number of times that this thread called the filter.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// Filter that passes everything. `tracing` asks the filters at each span only if one of them does
/// not want the span's callsite. So a call of this filter shows that pfp's layer does not want the
/// callsite.
struct Asked;

impl<S> Filter<S> for Asked {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        ASKED.set(ASKED.get() + 1);
        true
    }
    fn callsite_enabled(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::always()
    }
}

fn plain() -> Span {
    tracing::info_span!("plain")
}

fn with_amount() -> Span {
    tracing::trace_span!("with an amount", bytes = 7u64)
}

/// Makes three spans and two events.
fn call() {
    let outer = plain().entered();
    with_amount().in_scope(|| tracing::info!("event"));
    drop(outer);
    tracing::info_span!("always").in_scope(|| tracing::trace!("event"));
}

fn point(name: &str) -> &'static Point {
    let name = format!("beside::{name}");
    pfp::points().find(|point| point.name() == name).unwrap_or_else(|| panic!("no point {name}"))
}

fn count(name: &str) -> u64 {
    point(name).stats().map_or(0, |stats| stats.count)
}

/// Creates spans until the filter is called for a span or, if `are_asked` is false, until it is not
/// called for a span. Returns the number of spans.
fn make_until(are_asked: bool, make: fn() -> Span) -> u64 {
    let start = Instant::now();
    for made in 1.. {
        let before = ASKED.get();
        make().in_scope(|| ());
        if (ASKED.get() > before) == are_asked {
            return made;
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "callsites are not updated: {are_asked}"
        );
        thread::sleep(Duration::from_millis(10));
    }
    unreachable!("it has returned")
}

const ORDERS: [&str; 2] = ["pfp's layer first", "pfp's layer last"];

const UNDERSTOOD: &str = "the filter is understood";

fn set(order: &str) {
    let ours = Options::default().amounts(["bytes"]);
    let (open, filtered) = (Counter(&OPEN), Counter(&FILTERED));
    let is_set = if order == ORDERS[0] {
        let all = registry()
            .with(ours.layer().expect(UNDERSTOOD))
            .with(filtered.with_filter(Asked))
            .with(open);
        tracing::subscriber::set_global_default(all)
    } else {
        let all = registry()
            .with(open)
            .with(filtered.with_filter(Asked))
            .with(ours.layer().expect(UNDERSTOOD));
        tracing::subscriber::set_global_default(all)
    };
    is_set.expect("it is the first");
}

fn judge(spans: u64, events: u64) {
    for counts in [&OPEN, &FILTERED] {
        assert_eq!(counts.all(), [spans, spans, spans, spans, events]);
    }
}

#[test]
fn other_layers_see_all_spans_while_points_switch() {
    let test = "other_layers_see_all_spans_while_points_switch";
    let Some(order) = apart::case(test, &ORDERS, |_, _| ()) else { return };
    set(&order);
    let is_over = AtomicBool::new(false);
    let (calls, made) = thread::scope(|scope| {
        let work = || (0..).take_while(|_| !is_over.load(Relaxed)).map(|_| call()).count() as u64;
        let threads = [(); 3].map(|()| scope.spawn(work));
        call();
        let mut made = [0; 2];
        for _ in 0..SWITCHES {
            for (made, (name, make)) in made
                .iter_mut()
                .zip([("with an amount", with_amount as fn() -> Span), ("plain", plain)])
            {
                point(name).disable();
                *made += make_until(true, make);
                point(name).enable();
                *made += make_until(false, make);
            }
        }
        is_over.store(true, Relaxed);
        let calls: u64 = threads.into_iter().map(|thread| thread.join().expect("it ends")).sum();
        (calls + 1, made)
    });
    judge(3 * calls + made[0] + made[1], 2 * calls);
    // pfp's layer has measured all spans of the point that was never off, and the spans of the
    // other two points that were created while the point was on.
    assert_eq!(count("always"), calls);
    for (name, made) in ["with an amount", "plain"].into_iter().zip(made) {
        assert!((1..calls + made).contains(&count(name)), "{name}: {}", count(name));
    }
}

#[test]
fn other_layers_see_spans_that_the_filter_rejects() {
    let test = "other_layers_see_spans_that_the_filter_rejects";
    let prepare = |_: &str, command: &mut Command| {
        command.env("PFP_TRACING", "info");
    };
    let Some(order) = apart::case(test, &ORDERS, prepare) else { return };
    set(&order);
    (0..10).for_each(|_| call());
    judge(30, 20);
    assert_eq!(["always", "plain"].map(count), [10; 2]);
    assert!(pfp::points().all(|point| point.name() != "beside::with an amount"));
}

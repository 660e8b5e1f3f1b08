//! What programs do wrong with spans, amounts, and what is switched off: counted and told, and
//! never wrong figures.

use std::panic;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pfp::Point;
use tracing::{Span, info_span};

fn point(name: &str) -> &'static Point {
    let name = format!("misuse::{name}");
    pfp::points().find(|point| point.name() == name).unwrap_or_else(|| panic!("no point {name}"))
}

fn count(name: &str) -> u64 {
    point(name).stats().map_or(0, |stats| stats.count)
}

fn exclusive(name: &str) -> Duration {
    point(name).stats().map_or(Duration::ZERO, |stats| stats.mean() * stats.count as u32)
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {}
}

fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Mismatches that this process has counted, as a viewer sees them.
fn mismatches() -> u64 {
    let file = std::env::temp_dir().join(format!("pfp-tracing-{}.json", std::process::id()));
    pfp::snapshot_over(&file).expect("it can be written");
    let text = std::fs::read_to_string(&file).expect("it was written");
    let _ = std::fs::remove_file(&file);
    let (_, rest) = text.split_once("\"mismatched_ends\":").expect("a snapshot has it");
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// All in one: the subscriber is the process's.
#[test]
fn nothing_that_programs_do_makes_wrong_figures() {
    pfp_tracing::Options::default().amounts(["bytes", "items"]).init().expect("it is the first");
    assert_eq!(pfp_tracing::init(), Err(pfp_tracing::InitError::NotTheFirst));
    spans_have_the_numbers_of_their_fields();
    guards_may_end_in_any_order();
    a_guard_may_end_on_another_thread();
    a_span_that_panics_is_measured();
    a_span_may_never_close();
    the_current_span_is_the_innermost();
    what_is_switched_off_is_not_asked();
}

fn spans_have_the_numbers_of_their_fields() {
    for n in [1u64, 2, 3] {
        let _span = info_span!("read", path = "x", bytes = n * 10, items = -1i64).entered();
    }
    assert_eq!(count("read"), 3);
    assert_eq!(amounts("read"), [("bytes", 60), ("items", 0)]);
    // Of the span's own choice, said later.
    let span = info_span!("later", size = tracing::field::Empty, pfp.amounts = "size");
    span.in_scope(|| ());
    span.record("size", 7u64);
    span.in_scope(|| ());
    span.clone().in_scope(|| ());
    assert_eq!((count("later"), amounts("later")), (3, vec![("size", 14)]));
    // More than are kept at a time.
    let held: Vec<Span> = (0..20_000u64).map(|n| info_span!("held", bytes = n)).collect();
    held.iter().for_each(|span| span.in_scope(|| ()));
    drop(held);
    assert_eq!(count("held"), 20_000);
    info_span!("held", bytes = u64::MAX).in_scope(|| ());
}

fn amounts(name: &str) -> Vec<(&'static str, u128)> {
    pfp::c::amounts(point(name))
        .expect("it has some")
        .into_iter()
        .zip(names(name).iter().copied())
        .map(|(sum, name)| (name, sum))
        .collect()
}

fn names(name: &str) -> &'static [&'static str] {
    if name == "later" { &["size"] } else { &["bytes", "items"] }
}

fn guards_may_end_in_any_order() {
    let before = mismatches();
    let (outer, inner) = (info_span!("outer"), info_span!("inner"));
    let outer = outer.enter();
    spin(Duration::from_millis(5));
    let inner = inner.enter();
    drop(outer);
    spin(Duration::from_millis(20));
    drop(inner);
    spin(Duration::from_millis(20));
    assert_eq!((count("outer"), count("inner")), (1, 1));
    assert_eq!(mismatches() - before, 1);
    // Each has its own time, as far as this thread had the CPU.
    assert!(exclusive("outer") < Duration::from_millis(15), "{:?}", exclusive("outer"));
    info_span!("after").in_scope(|| ());
    assert_eq!(count("after"), 1);
}

fn a_guard_may_end_on_another_thread() {
    let before = mismatches();
    // As a task that awaits with a guard in its hands: it begins here and ends there.
    let (give, take) = mpsc::channel::<Strayed>();
    let (say, hear) = mpsc::channel();
    let there = thread::spawn(move || {
        for strayed in take {
            strayed.end();
            say.send(()).unwrap();
        }
        info_span!("there").in_scope(|| ());
    });
    for _ in 0..1000 {
        give.send(Strayed::begin(info_span!("strayed"))).unwrap();
        hear.recv().unwrap();
        info_span!("meanwhile").in_scope(|| ());
    }
    drop(give);
    there.join().unwrap();
    assert_eq!((count("meanwhile"), count("there"), count("strayed")), (1000, 1, 0));
    assert_eq!(mismatches() - before, 1000);
}

/// A span that is entered by one thread and left by another, as the guards of `tracing` cannot be
/// sent.
struct Strayed(Span);

impl Strayed {
    fn begin(span: Span) -> Self {
        span.with_subscriber(|(id, all)| all.enter(id));
        Self(span)
    }

    fn end(self) {
        self.0.with_subscriber(|(id, all)| all.exit(id));
    }
}

fn a_span_that_panics_is_measured() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let panicked = panic::catch_unwind(|| {
        let _outer = info_span!("unwound").entered();
        let _inner = info_span!("unwound inside").entered();
        panic!("as it may");
    });
    panic::set_hook(hook);
    assert!(panicked.is_err());
    assert_eq!((count("unwound"), count("unwound inside")), (1, 1));
}

fn a_span_may_never_close() {
    for _ in 0..100 {
        let span = info_span!("leaked");
        span.in_scope(|| ());
        std::mem::forget(span);
    }
    assert_eq!(count("leaked"), 100);
    // Never left: it is open as the program ends, and what is inside is measured.
    let thread = thread::spawn(|| {
        std::mem::forget(info_span!("never left").entered());
        info_span!("inside of it").in_scope(|| ());
    });
    thread.join().unwrap();
    assert_eq!((count("never left"), count("inside of it")), (0, 1));
}

fn the_current_span_is_the_innermost() {
    assert!(Span::current().is_none());
    let outer = info_span!("around").entered();
    info_span!("within").in_scope(|| {
        assert_eq!(Span::current().metadata().map(|its| its.name()), Some("within"));
    });
    assert_eq!(Span::current(), *outer);
}

fn what_is_switched_off_is_not_asked() {
    let call = || {
        let span = info_span!("switched");
        span.in_scope(|| ());
        span.is_disabled()
    };
    assert!(!call());
    point("switched").disable();
    wait_for("the callsite to be told that it is off", call);
    let then = count("switched");
    assert!((0..100).all(|_| call()));
    assert_eq!(count("switched"), then);
    // Others are as they were.
    info_span!("beside").in_scope(|| ());
    assert_eq!(count("beside"), 1);
    point("switched").enable();
    wait_for("the callsite to be told that it is on", || !call());
    assert!(count("switched") > then);
}

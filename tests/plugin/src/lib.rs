//! A plugin that measures with its own copy of pfp, as `tests/c/copy.c` does in C.

use std::ffi::{CStr, c_char};
use std::hint::black_box;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pfp::{ExecutionContext, MeteredPoint, Point};

/// A function of the host that measures inside the plugin's region.
type Inside = extern "C" fn(i32) -> i32;

/// Works inside a region, and calls the host back from there.
#[unsafe(no_mangle)]
pub extern "C" fn work(inside: Option<Inside>, argument: i32) -> i32 {
    pfp::scope!("plugin in Rust");
    for turn in 0..20_000 {
        black_box(turn);
    }
    inside.map_or(argument, |inside| inside(argument)) + 1
}

/// Pauses all measuring, or resumes it.
#[unsafe(no_mangle)]
pub extern "C" fn pause_all(pause: i32) {
    pfp::set_enabled(pause == 0);
}

fn count(point: &'static Point) -> u64 {
    point.stats().map_or(0, |stats| stats.count)
}

/// Uses every part of the API, and writes a snapshot to a file.
///
/// # Safety
///
/// `file` points to a NUL-terminated string that is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn everything(file: *const c_char) {
    // SAFETY: the caller guarantees a NUL-terminated string that is valid during the call.
    let file = unsafe { CStr::from_ptr(file) }.to_str().expect("it is plain text");
    pfp::init().expect("there is a segment");
    pfp::set_program_name("a program with a plugin");
    pfp::register_thread!("of the plugin");
    regions();
    amounts();
    polls();
    contexts();
    steering();
    assert!(pfp::calibrate(64).is_some_and(|found| found.pair >= found.inside));
    let before = pfp::ticks();
    let on_cpu = pfp::on_cpu_ticks().expect("there is a clock");
    assert!(pfp::on_cpu_ticks() >= Some(on_cpu) && pfp::ticks() >= before);
    assert!(pfp::ticks_per_second() > 1e6);
    pfp::finish_frame!();
    pfp::finish_frame!();
    pfp::snapshot_to(file).expect("there is room");
    let again = pfp::snapshot_to(Path::new(file)).map_err(|error| error.kind());
    assert_eq!(again, Err(std::io::ErrorKind::AlreadyExists));
    let mut text = Vec::new();
    pfp::show(&mut text).expect("there is memory");
    assert!(String::from_utf8(text).expect("it is text").contains("by hand"));
}

fn regions() {
    static BY_HAND: Point = Point::new("by hand");
    BY_HAND.end();
    for _ in 0..2 {
        BY_HAND.begin();
        black_box(1);
        BY_HAND.end_latched();
        BY_HAND.begin();
        BY_HAND.end();
    }
    assert_eq!(count(&BY_HAND), 2);

    static FIRST: Point = Point::new("first");
    static SECOND: Point = Point::new("second");
    let mut guard = FIRST.measure();
    for _ in 0..300 {
        guard.lap(&SECOND);
        guard.lap(&FIRST);
    }
    drop(guard);
    assert_eq!((count(&FIRST), count(&SECOND)), (301, 300));
    assert!(FIRST.stats().is_some_and(|stats| stats.quantile(0.5).is_some()));

    static THIRD: Point = Point::new("third");
    for _ in 0..1000 {
        let _guard = THIRD.measure();
    }
    let stats = THIRD.stats().expect("it has measured");
    assert!(stats.count == 1000 && stats.inclusive >= stats.exclusive && stats.max >= stats.min);

    let point = Point::numbered(5);
    point.set_name("five");
    point.enable();
    for _ in 0..3 {
        point.begin_once();
        point.end();
    }
    assert_eq!((count(point), point.name().as_ref()), (3, "five"));
    point.begin_once();
    point.begin_once();
    assert!(!point.is_enabled(), "begun twice");
}

fn amounts() {
    static METERED: MeteredPoint = MeteredPoint::new("metered", &["bytes", "flops"]);
    for bytes in 0..20_u64 {
        drop(METERED.measure([bytes, 2]));
    }
    METERED.begin();
    METERED.end([10, 1]);
    let mut guard = METERED.measure([1, 1]);
    guard.lap_with(&METERED, [2, 2]);
    drop(guard);
    assert_eq!(METERED.amounts(), [("bytes", 190 + 10 + 3), ("flops", 40 + 1 + 3)]);
    assert_eq!(METERED.point().stats().map(|stats| stats.count), Some(23));
}

fn polls() {
    static POLLED: Point = Point::new("polled");
    static WITH_AMOUNTS: MeteredPoint = MeteredPoint::new("polled with amounts", &["items"]);
    let twice = || {
        let mut polls = 0;
        std::future::poll_fn(move |_| {
            polls += 1;
            if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
        })
    };
    let mut context = Context::from_waker(Waker::noop());
    let mut one = pin!(POLLED.measure_async(twice()));
    let mut other = pin!(WITH_AMOUNTS.measure_async([7_u32], twice()));
    for is_ready in [false, true] {
        assert_eq!(one.as_mut().poll(&mut context).is_ready(), is_ready);
        assert_eq!(other.as_mut().poll(&mut context).is_ready(), is_ready);
    }
    {
        let mut dropped = pin!(WITH_AMOUNTS.measure_async([1_u32], twice()));
        assert!(dropped.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!((count(&POLLED), WITH_AMOUNTS.amounts()[0]), (1, ("items", 8)));
}

fn contexts() {
    static TASK: Point = Point::new("task");
    let [one, other] = [ExecutionContext::new(), ExecutionContext::new()];
    assert_ne!(one.number(), other.number());
    let entered = one.enter().expect("it is free");
    // A context that is already entered cannot be entered again.
    assert!(one.clone().enter().is_none());
    TASK.begin();
    assert!(pfp::task_switch(&one, &other));
    TASK.begin();
    TASK.end();
    assert!(pfp::task_switch(&other, &one));
    TASK.end();
    drop(entered);
    assert_eq!(count(&TASK), 2);
}

fn steering() {
    static STEERED: Point = Point::new("steered").starts_off();
    let measure = || drop(STEERED.measure());
    measure();
    assert!(!STEERED.is_enabled());
    STEERED.enable();
    measure();
    STEERED.set_fenced(true);
    measure();
    STEERED.set_fenced(false);
    assert!(STEERED.is_enabled() && count(&STEERED) == 2);
    STEERED.reset();
    assert_eq!(STEERED.stats(), None);
    STEERED.set_alpha(0.25).expect("it is a weight");
    measure();
    assert_eq!(STEERED.alpha(), Some(0.25));
    STEERED.clear_alpha();
    assert_eq!(STEERED.alpha(), None);
    pfp::set_enabled(false);
    assert!(!pfp::is_enabled());
    measure();
    pfp::set_enabled(true);
    STEERED.set_name("another name");
    assert_eq!((count(&STEERED), STEERED.name().as_ref()), (1, "another name"));
    assert!(pfp::points().any(|point| std::ptr::eq(point, &raw const STEERED)));
}

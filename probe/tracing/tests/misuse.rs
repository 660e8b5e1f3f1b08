//! Programs misuse spans and amounts, and points are switched off: pfp counts the errors, and its
//! figures stay correct.

mod apart;

use std::future::poll_fn;
use std::sync::{Mutex, OnceLock, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};
use std::{mem, panic, thread};

use pfp::Point;
use tracing::field::FieldSet;
use tracing::metadata::Kind;
use tracing::subscriber::Interest;
use tracing::{Instrument, Level, Metadata, Span, info_span};
use tracing_core::callsite::{Callsite, Identifier};
use tracing_core::dispatcher;

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

/// A counter of lost measurements of this process, as a viewer sees it.
fn lost(what: &str) -> u64 {
    let file = std::env::temp_dir().join(format!("pfp-tracing-{}.json", std::process::id()));
    pfp::snapshot_over(&file).expect("it can be written");
    let text = std::fs::read_to_string(&file).expect("it was written");
    let _ = std::fs::remove_file(&file);
    let (_, rest) = text.split_once(&format!("\"{what}\":")).expect("a snapshot has it");
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

fn mismatches() -> u64 {
    lost("mismatched_ends")
}

fn refusals() -> u64 {
    lost("begins_refused")
}

#[test]
fn misuse_never_makes_wrong_figures() {
    let Some(way) = apart::way("misuse_never_makes_wrong_figures") else { return };
    let options = pfp_tracing::Options::default().amounts(["bytes", "items"]);
    apart::set(&way, options).expect("it is the first");
    assert_eq!(pfp_tracing::init(), Err(pfp_tracing::InitError::NotTheFirst));
    spans_have_the_numbers_of_their_fields();
    guards_may_end_in_any_order();
    a_guard_may_end_on_another_thread();
    a_guard_may_be_held_across_an_await();
    a_task_may_go_to_another_thread_with_a_guard();
    a_span_that_panics_is_measured();
    a_span_may_never_close();
    the_current_span_is_the_innermost();
    // The span with amounts comes first, because an update covers all callsites while one of them
    // is off.
    a_span_is_not_created_while_off("switched amount", || {
        info_span!("switched amount", bytes = 1u64)
    });
    a_span_is_not_created_while_off("switched", || info_span!("switched"));
    spans_beyond_all_places_are_counted();
}

fn spans_have_the_numbers_of_their_fields() {
    for n in [1u64, 2, 3] {
        let _span = info_span!("read", path = "x", bytes = n * 10, items = -1i64).entered();
    }
    assert_eq!(count("read"), 3);
    assert_eq!(amounts("read"), [("bytes", 60), ("items", 0)]);
    // The span selects its amounts, and records one after its creation.
    let span = info_span!("later", size = tracing::field::Empty, pfp.amounts = "size");
    span.in_scope(|| ());
    span.record("size", 7u64);
    span.in_scope(|| ());
    span.clone().in_scope(|| ());
    assert_eq!((count("later"), amounts("later")), (3, vec![("size", 14)]));
    // Long-lived spans do not take the slots of other spans.
    let before = refusals();
    let held: Vec<Span> = (0..1000).map(|_| info_span!("lives long", bytes = 1u64)).collect();
    (0..20_000).for_each(|_| info_span!("passes by", bytes = 1u64).in_scope(|| ()));
    held.iter().for_each(|span| span.in_scope(|| ()));
    drop(held);
    assert_eq!(["lives long", "passes by"].map(|name| amounts(name)[0].1), [1000, 20_000]);
    assert_eq!(refusals(), before);
    // More spans than there are slots for amounts.
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
    // Each span has only its own time. It is less if this thread was pre-empted.
    assert!(exclusive("outer") < Duration::from_millis(15), "{:?}", exclusive("outer"));
    info_span!("after").in_scope(|| ());
    assert_eq!(count("after"), 1);
}

fn a_guard_may_end_on_another_thread() {
    let before = mismatches();
    // Like a task that awaits while it holds a guard: the entry begins here and ends on the other
    // thread.
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

/// A span that one thread enters and another exits. The guards of `tracing` cannot be sent to
/// another thread.
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

/// Yields to other tasks once.
async fn give_way() {
    let mut is_first = true;
    poll_fn(|context| {
        context.waker().wake_by_ref();
        if mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

fn a_guard_may_be_held_across_an_await() {
    const POLLS: u64 = 10;
    let before = mismatches();
    let holds = async {
        for _ in 0..POLLS {
            let _held = info_span!("held across").entered();
            give_way().await;
        }
    };
    let other = async {
        for _ in 0..2 * POLLS {
            info_span!("other").in_scope(|| ());
            give_way().await;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let holds = tokio::task::spawn_local(holds.instrument(info_span!("holds")));
        let other = tokio::task::spawn_local(other.instrument(info_span!("other task")));
        holds.await.expect("it ends");
        other.await.expect("it ends");
    });
    // One mismatch for each poll that leaves `held across` open, and one for each poll that drops
    // its guard.
    assert_eq!(mismatches() - before, 2 * POLLS);
    assert_eq!(count("held across"), 0);
    // Only two entries are recorded: the last poll's, and the entry for the drop of the task.
    assert_eq!(count("holds"), 2);
    assert_eq!((count("other"), count("other task")), (2 * POLLS, 2 * POLLS + 2));
}

fn a_task_may_go_to_another_thread_with_a_guard() {
    let before = mismatches();
    let task = info_span!("task that goes");
    let held = task.in_scope(|| Strayed::begin(info_span!("goes along")));
    let stays = || info_span!("task that stays").in_scope(|| ());
    stays();
    let there = thread::spawn(move || task.in_scope(|| held.end()));
    there.join().unwrap();
    stays();
    assert_eq!((count("goes along"), count("task that goes"), count("task that stays")), (0, 1, 2));
    assert_eq!(mismatches() - before, 2);
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
    // More spans than there are slots for amounts. These spans have no amounts and occupy no slots,
    // so spans with amounts still find free slots.
    let before = refusals();
    for _ in 0..20_000 {
        let span = info_span!("leaked");
        span.in_scope(|| ());
        mem::forget(span);
    }
    for _ in 0..100 {
        info_span!("after leaks", bytes = 3u64).in_scope(|| ());
    }
    assert_eq!((count("leaked"), count("after leaks")), (20_000, 100));
    assert_eq!((amounts("after leaks")[0], refusals() - before), (("bytes", 300), 0));
    // A span that is never exited stays open at the end of the program, and spans inside it are
    // measured.
    let thread = thread::spawn(|| {
        mem::forget(info_span!("never left").entered());
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

fn a_span_is_not_created_while_off(name: &str, make: fn() -> Span) {
    let call = || {
        let span = make();
        span.in_scope(|| ());
        span.is_disabled()
    };
    assert!(!call());
    point(name).disable();
    wait_for("the callsite to be disabled", call);
    let then = count(name);
    assert!((0..100).all(|_| call()));
    assert_eq!(count(name), then);
    // Other spans are not affected.
    let beside = || info_span!("beside").in_scope(|| count("beside"));
    assert_eq!(beside() + 1, beside());
    point(name).enable();
    wait_for("the callsite to be enabled", || !call());
    assert!(count(name) > then);
}

/// A callsite that is created at run time.
#[derive(Default)]
struct Made {
    metadata: OnceLock<Metadata<'static>>,
    interest: Mutex<Option<Interest>>,
}

impl Callsite for Made {
    fn set_interest(&self, interest: Interest) {
        *self.interest.lock().unwrap() = Some(interest);
    }
    fn metadata(&self) -> &Metadata<'_> {
        self.metadata.get().expect("it was made with the callsite")
    }
}

impl Made {
    fn new() -> &'static Self {
        let made: &'static Self = Box::leak(Box::default());
        made.metadata.get_or_init(|| {
            let fields = FieldSet::new(&[], Identifier(made));
            let (file, line) = (Some(file!()), Some(line!()));
            Metadata::new("made", "misuse", Level::INFO, file, line, None, fields, Kind::SPAN)
        });
        tracing_core::callsite::register(made);
        made
    }

    /// Creates a span like the macros of `tracing`.
    fn span(&'static self) -> Span {
        let metadata = self.metadata.get().expect("it was made with the callsite");
        let interest = self.interest.lock().unwrap().take().expect("it was registered");
        let is_wanted = interest.is_always()
            || interest.is_sometimes() && dispatcher::get_default(|all| all.enabled(metadata));
        self.set_interest(interest);
        match is_wanted {
            true => Span::new(metadata, &metadata.fields().value_set(&[])),
            false => Span::none(),
        }
    }
}

fn spans_beyond_all_places_are_counted() {
    let sites: Vec<_> = (0..4096).map(|_| Made::new()).collect();
    let of_all = || {
        let made = pfp::points().filter(|point| point.name() == "misuse::made");
        made.filter_map(Point::stats).map(|stats| stats.count).sum::<u64>()
    };
    let refused = refusals();
    let last = sites.last().expect("there are some");
    for _ in 0..100 {
        last.span().in_scope(|| ());
        info_span!("one more").in_scope(|| ());
    }
    // A span on a thread that has measured nothing before counts as refused, too.
    let other = thread::spawn(|| last.span().in_scope(|| ()));
    other.join().expect("it ends");
    assert_eq!((refusals() - refused, of_all()), (201, 0));
    // A callsite that has a point is not affected.
    sites[0].span().in_scope(|| ());
    assert_eq!(of_all(), 1);
}

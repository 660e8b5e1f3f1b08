//! Cost of a span as a profile point, compared with the cost without pfp.
//!
//! Each case runs in its own process, all in turn for many rounds (see `pfp-bench`). A span is
//! created, entered, exited and closed. `cargo bench -p pfp-tracing`; add `-- --quick` for a short
//! run.

use std::hint::black_box;
use std::io;
use std::sync::Once;

use pfp_bench::{Case, Worker, case, interleave, median};
use tracing::subscriber::set_global_default;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

const FLOOR: &str = "two bare rdtsc";
const LOOP: &str = "an empty loop";
const NOBODY: &str = "span, no subscriber";
const REGISTRY: &str = "span, a registry alone";
const LAYER: &str = "span, a registry with layer()";
const LAYER_OFF: &str = "span, a registry with layer(), switched off";

fn two_rdtsc() {
    let first = pfp::ticks();
    black_box(pfp::ticks().wrapping_sub(first));
}

#[inline(always)]
fn span() {
    let _span = tracing::info_span!("span").entered();
    black_box(());
}

#[inline(always)]
fn span_with_amounts() {
    let _span = tracing::info_span!("span", bytes = black_box(24u64)).entered();
    black_box(());
}

fn entered_again(span: &tracing::Span) {
    let _entered = span.enter();
    black_box(());
}

/// Runs `set` once per process.
fn once(set: fn()) {
    static ONCE: Once = Once::new();
    ONCE.call_once(set);
}

fn subscriber() {
    once(|| pfp_tracing::init().expect("it is the first"));
}

fn subscriber_with_amounts() {
    once(|| pfp_tracing::Options::default().amounts(["bytes"]).init().expect("it is the first"));
}

fn layered() {
    once(|| {
        set_global_default(registry().with(pfp_tracing::layer())).expect("it is the first");
    });
}

/// Installs pfp with `set`, with all points off. A callsite learns this at its first span.
fn off(set: fn()) {
    // SAFETY: the process has no other threads yet that could read the environment.
    unsafe { std::env::set_var("PFP_DEFAULT", "off") };
    set();
}

fn cases() -> Vec<Case> {
    vec![
        case!(FLOOR, 1, two_rdtsc()),
        case!(LOOP, 1, black_box(())),
        case!("scope!", 1, {
            pfp::scope!("scope");
            black_box(());
        }),
        case!(NOBODY, 1, span()),
        case!("span, init()", 1, subscriber, span()),
        case!("span with an amount, init()", 1, subscriber_with_amounts, span_with_amounts()),
        Case {
            name: "span entered again, init()",
            regions: 1,
            prepare: subscriber,
            batch: |calls| {
                let span = tracing::info_span!("again");
                for _ in 0..calls {
                    entered_again(&span);
                }
            },
        },
        case!("span, init(), switched off", 1, || off(subscriber), span()),
        case!(
            REGISTRY,
            1,
            || once(|| set_global_default(registry()).expect("it is the first")),
            span()
        ),
        case!(LAYER, 1, layered, span()),
        case!(LAYER_OFF, 1, || off(layered), span()),
    ]
}

/// Maximum cost: a multiple of two `rdtsc`, or nanoseconds.
enum Bar {
    Times(f64),
    Ns(f64),
}

fn bar(name: &str) -> Option<Bar> {
    match name {
        "span, init()" => Some(Bar::Times(1.6)),
        "span, init(), switched off" => Some(Bar::Ns(1.5)),
        LAYER => Some(Bar::Ns(110.0)),
        _ => None,
    }
}

fn main() -> io::Result<()> {
    let cases = cases();
    pfp_bench::serve_if_asked(&cases);
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    let (rounds, calls) = match (has("--test"), has("--quick")) {
        (true, _) => (1, 1000),
        (_, true) => (11, 20_000),
        _ => (101, 20_000),
    };
    let mut workers =
        cases.iter().map(|case| Worker::spawn(case.name)).collect::<io::Result<Vec<_>>>()?;
    let samples = interleave(&mut workers, rounds, |worker| Ok(worker.run(calls, 1)?.ns))?;
    let medians: Vec<f64> = samples.into_iter().map(|mut ns| median(&mut ns)).collect();
    println!("\n| a span as a point | ns | x two rdtsc | bar |");
    println!("|---|---:|---:|---:|");
    for (case, ns) in cases.iter().zip(&medians) {
        let bar = match bar(case.name) {
            Some(Bar::Times(times)) => format!("{times:.2}"),
            Some(Bar::Ns(ns)) => format!("{ns} ns"),
            None => String::new(),
        };
        println!("| {} | {ns:.2} | {:.2} | {bar} |", case.name, ns / medians[0]);
    }
    println!("\n{}", pfp_bench::machine(pfp::ticks_per_second()));
    Ok(())
}

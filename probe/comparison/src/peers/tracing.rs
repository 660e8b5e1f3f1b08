//! tracing with tracing-timing, which tracing's documentation names for timing metrics ("Related
//! crates"). The setup follows tracing-timing's first example: a `TimingSubscriber` with histograms
//! of up to 1,000,000 ns and two significant digits, and a span with an event at its end, since
//! tracing-timing measures the time up to an event. The subscriber is the global default, as in
//! tracing-timing's second example.
//!
//! A level filter that is reloaded at run time switches tracing off, as in the documentation of
//! `tracing_subscriber::reload`. Only the case that is switched off has that filter: "this layer
//! introduces a (relatively small) amount of overhead".

use std::sync::Once;

use pfp_bench::case;
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, dispatcher, trace, trace_span};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{registry, reload};
use tracing_timing::{Builder, Histogram};

use crate::nothing;
use crate::row::{Row, Subject};

pub(crate) fn row() -> Row {
    Row {
        name: "tracing, span and event",
        packages: &["tracing", "tracing-timing"],
        on: Subject::Here(case!("tracing", 1, start, region())),
        off: Some(Subject::Here(case!("tracing, off", 1, start_and_stop, region()))),
        switch: "levels and targets, from the program (`reload`); or compiled out by level",
        records: "wall-clock time to each event, histogram; read in the program",
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(1_000_000, 2).expect("figures as in the documentation")
}

fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        let timing = Builder::default().build(histogram);
        dispatcher::set_global_default(Dispatch::new(timing)).expect("the only one");
    });
}

fn start_and_stop() {
    static START: Once = Once::new();
    START.call_once(|| {
        let (filter, handle) = reload::Layer::new(LevelFilter::TRACE);
        registry().with(filter).with(Builder::default().layer(histogram)).init();
        region();
        handle.modify(|filter| *filter = LevelFilter::OFF).expect("the subscriber is there");
    });
}

fn region() {
    trace_span!("region").in_scope(|| {
        nothing();
        trace!("end");
    });
}

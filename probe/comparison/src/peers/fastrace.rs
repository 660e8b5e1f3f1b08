//! fastrace: a `LocalSpan` per region, which its documentation recommends over `Span` within a
//! thread, inside a root span with `set_local_parent`. A trace is reported when its root ends, so
//! the README asks for short traces; here a trace has a thousand regions. The reporter drops the
//! spans that it receives, because the cost of an exporter is not fastrace's. All other settings
//! are the defaults.
//!
//! To switch fastrace off, the case sets no local parent: "If no local context is set,
//! `LocalSpan::enter_with_local_parent()` will do nothing." A program decides that at each root.
//! Without the feature `enable`, fastrace is compiled out.

use std::sync::Once;

use fastrace::collector::{Config, Reporter, SpanRecord};
use fastrace::prelude::{LocalSpan, Span, SpanContext};
use pfp_bench::{Case, case};

use super::in_groups;
use crate::nothing;
use crate::row::{Row, Subject};

pub(crate) fn row() -> Row {
    Row {
        name: "fastrace, `LocalSpan`",
        packages: &["fastrace"],
        on: Subject::Here(Case { name: "fastrace", regions: 1, prepare: start, batch: traces }),
        off: Some(Subject::Here(case!("fastrace, off", 1, start, region()))),
        switch: "no root span, trace by trace; or compiled out",
        records: "every span with its parent, begin and wall-clock duration, for an exporter",
    }
}

struct Discard;

impl Reporter for Discard {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        std::hint::black_box(spans);
    }
}

fn start() {
    static START: Once = Once::new();
    START.call_once(|| fastrace::set_reporter(Discard, Config::default()));
}

fn traces(calls: u64) {
    in_groups(calls, |regions| {
        let root = Span::root("trace", SpanContext::random());
        let _parent = root.set_local_parent();
        for _ in 0..regions {
            region();
        }
    });
}

fn region() {
    let _span = LocalSpan::enter_with_local_parent("region");
    nothing();
}

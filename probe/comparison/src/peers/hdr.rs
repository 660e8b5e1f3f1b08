//! A hand-written measurement: `Instant` before and after, and an hdrhistogram per thread with
//! three significant digits from a nanosecond to a minute, as in hdrhistogram's documentation
//! (`new_with_bounds`). Merging the threads' histograms is not included in the cost.

use std::cell::RefCell;
use std::time::Instant;

use hdrhistogram::Histogram;
use pfp_bench::case;

use crate::nothing;
use crate::row::{Row, Subject};

pub(crate) fn row() -> Row {
    Row {
        name: "`Instant` and a histogram per thread",
        packages: &["hdrhistogram"],
        on: Subject::Here(case!("hdrhistogram", 1, region())),
        off: None,
        switch: "none",
        records: "wall-clock time, count, histogram; read where the program says",
    }
}

thread_local! {
    static TIMES: RefCell<Histogram<u64>> = RefCell::new(
        Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds as in the documentation"),
    );
}

fn region() {
    let start = Instant::now();
    nothing();
    let ns = start.elapsed().as_nanos() as u64;
    TIMES.with_borrow_mut(|times| times.saturating_record(ns));
}

//! metrics: `histogram!` with the time since an `Instant`, as the crate's documentation shows for
//! libraries, and the Prometheus recorder installed with `install_recorder`. The exporter's
//! documentation ("Upkeep and maintenance") then asks for regular calls of `run_upkeep`: a thread
//! makes one every 5 seconds, like the exporter's own task by default. Nothing scrapes the figures,
//! because the exporter does not listen.
//!
//! To switch metrics off, the program installs no recorder: "a noop recorder lives in its place,
//! which has an incredibly low overhead". The program decides that once, when it starts. The clock
//! is still read.

use std::sync::Once;
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusBuilder;
use pfp_bench::case;

use crate::nothing;
use crate::row::{Row, Subject};

pub(crate) fn row() -> Row {
    Row {
        name: "metrics, `histogram!`",
        packages: &["metrics", "metrics-exporter-prometheus"],
        on: Subject::Here(case!("metrics", 1, start, region())),
        off: Some(Subject::Here(case!("metrics, off", 1, region()))),
        switch: "no recorder, at the start; the clock is still read",
        records: "whatever the program measures, here wall-clock time: count, sum, quantiles; \
                  scraped by another process",
    }
}

fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        let handle = PrometheusBuilder::new().install_recorder().expect("the only one");
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(5));
                handle.run_upkeep();
            }
        });
    });
}

fn region() {
    let start = Instant::now();
    nothing();
    metrics::histogram!("region").record(start.elapsed());
}

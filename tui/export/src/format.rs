//! The formats by name.

use std::io::{self, Write};

use clap::ValueEnum;

use super::subject::Subject;
use super::{
    chrome, csv, folded, hgrm, hlog, openmetrics, perfetto, speedscope, svg_histogram, svg_trace,
};

/// A form in which a snapshot is written for others to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Format {
    /// All figures, a row for each point, for spreadsheets (RFC 4180); a text that looks like a
    /// formula starts with an apostrophe.
    Csv,
    /// Counters, loads and histograms as OpenMetrics text, for Prometheus.
    #[value(name = "openmetrics")]
    OpenMetrics,
    /// HdrHistogram's percentile distribution of every point, as text.
    Hgrm,
    /// HdrHistogram's interval log, version 2, tagged with the points' names.
    Hlog,
    /// Exclusive nanoseconds by call path, a line for each path, for flame graphs.
    Folded,
    /// Exclusive time by call path and the last moments of every thread, for speedscope.
    Speedscope,
    /// The last moments of every thread as Chrome's trace events, in JSON.
    Chrome,
    /// The last moments of every thread as Perfetto's protocol buffers.
    Perfetto,
    /// The last moments of every thread as a picture, for browsers.
    SvgTrace,
    /// The histograms of the busiest points as a picture, for browsers.
    SvgHistogram,
}

impl Format {
    /// Writes the subject in this format.
    pub fn write(self, subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Csv => csv::write(subject, out),
            Self::OpenMetrics => openmetrics::write(&[subject], out),
            Self::Hgrm => hgrm::write(subject, out),
            Self::Hlog => hlog::write(subject, out),
            Self::Folded => folded::write(subject, out),
            Self::Speedscope => speedscope::write(subject, out),
            Self::Chrome => chrome::write(subject, out),
            Self::Perfetto => perfetto::write(subject, out),
            Self::SvgTrace => svg_trace::write(subject, out),
            Self::SvgHistogram => svg_histogram::write(subject, out),
        }
    }

    /// Whether the format is binary, and so not for a terminal.
    pub fn is_binary(self) -> bool {
        self == Self::Perfetto
    }

    /// Whether the format has single calls.
    pub fn has_records(self) -> bool {
        matches!(self, Self::Chrome | Self::Perfetto | Self::Speedscope | Self::SvgTrace)
    }

    /// Whether the format can contain figures per thread.
    pub fn has_per_thread(self) -> bool {
        matches!(self, Self::Csv | Self::OpenMetrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_model::Model;
    use pfp_read::snapshot::{
        Allocs, AmountTuple, Bucket, Cell, HeapSamples, Record, Snapshot, Stats,
    };
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    /// A file whose numbers are all malicious.
    struct Damaged(u64);

    impl Damaged {
        fn number(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let odd = [0, 1, 31, 2600, 1 << 32, u64::MAX / 2, u64::MAX - 1, u64::MAX];
            odd[(self.0 >> 33) as usize % odd.len()]
        }

        fn stats(&mut self) -> Stats {
            let (count, switches) = (self.number(), self.number());
            let squares = u128::from(self.number()) << 64;
            let ticks = Stats::default().converted(|_| self.number(), |_| squares);
            Stats { count, switches, ..ticks }
        }
    }

    impl Source for Damaged {
        fn picture(&mut self) -> anyhow::Result<Snapshot> {
            let mut snapshot = Synthetic::new().poll()?;
            let rates = [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300, 1e300, 2.6e9];
            snapshot.clock.ticks_per_second = rates[self.number() as usize % rates.len()];
            snapshot.elapsed_ticks = self.number();
            snapshot.taken_unix_ns = self.number();
            snapshot.process.started_unix_ns = self.number();
            for cell in &mut snapshot.cells {
                *cell = std::sync::Arc::new(Cell {
                    point: cell.point,
                    lane: self.number() as u32 % 5,
                    stats: self.stats(),
                    retired: self.stats(),
                    histogram: (0..8)
                        .map(|_| Bucket {
                            low: self.number(),
                            width: self.number(),
                            count: self.number(),
                        })
                        .collect(),
                    tuples: vec![AmountTuple {
                        each: vec![self.number(); self.number() as usize % 6],
                        sums: vec![self.number(); self.number() as usize % 6],
                        stats: self.stats(),
                    }],
                    allocs: Allocs {
                        calls: self.number(),
                        allocs: self.number(),
                        bytes: self.number(),
                        ..Allocs::default()
                    },
                    heap: HeapSamples { live_bytes: self.number(), ..HeapSamples::default() },
                });
            }
            for lane in &mut snapshot.lanes {
                lane.records_written = self.number();
                lane.tid = self.number() as u32;
            }
            snapshot.records = (0..40)
                .map(|_| Record {
                    lane: self.number() as u32 % 5,
                    point: self.number() as u32 % 9,
                    start: self.number(),
                    span: self.number(),
                    exclusive: self.number(),
                    depth: self.number() as u32 % 3,
                    context: self.number() as u32,
                })
                .collect();
            Ok(snapshot)
        }
    }

    #[test]
    fn nonsense_is_written_without_harm() {
        for seed in 0..40 {
            let model = Model::of(Damaged(seed).poll().unwrap());
            let subject = Subject::new(&model, |_| true, false).unwrap();
            for format in Format::value_variants() {
                let mut out = Vec::new();
                format.write(&subject, &mut out).unwrap();
                assert!((1..2_000_000).contains(&out.len()), "{format:?} {seed}: {}", out.len());
            }
        }
    }
}

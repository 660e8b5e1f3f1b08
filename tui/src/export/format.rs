//! The formats by name.

use std::io::{self, Write};

use clap::ValueEnum;

use super::{Subject, chrome, csv, folded, hgrm, hlog, openmetrics, perfetto, speedscope};

/// A form in which a snapshot is written for others to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Format {
    /// Every figure of every point, a row each, for spreadsheets (RFC 4180).
    Csv,
    /// Counters, loads and histograms as OpenMetrics text, as Prometheus reads it.
    #[value(name = "openmetrics")]
    OpenMetrics,
    /// HdrHistogram's percentile distribution of every point, as text.
    Hgrm,
    /// HdrHistogram's interval log, version 2, tagged with the points' names.
    Hlog,
    /// Exclusive nanoseconds by call path, a line each, for flame graphs.
    Folded,
    /// The same and the last moments of every thread, for speedscope.
    Speedscope,
    /// The last moments of every thread as Chrome's trace events, in JSON.
    Chrome,
    /// The last moments of every thread as Perfetto's protocol buffers.
    Perfetto,
}

impl Format {
    /// Writes it.
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
        }
    }

    /// Whether it is anything but text.
    pub fn is_binary(self) -> bool {
        self == Self::Perfetto
    }

    /// Whether it can tell thread from thread where that is asked for.
    pub fn has_per_thread(self) -> bool {
        matches!(self, Self::Csv | Self::OpenMetrics)
    }
}

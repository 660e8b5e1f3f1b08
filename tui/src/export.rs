//! What the screen shows, for scripts, files and other programs: the same
//! data in other clothes, one file per form.

pub mod chrome;
pub mod csv;
pub mod folded;
mod format;

mod hdr;
pub mod hgrm;
pub mod hlog;
pub mod list;
#[cfg(any(feature = "native-histograms", feature = "otlp"))]
mod native;
pub mod openmetrics;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod perfetto;
pub mod rows;
mod series;
pub mod speedscope;
mod subject;
mod svg;
pub mod svg_histogram;
pub mod svg_roofline;
pub mod svg_trace;
pub mod table;
#[cfg(test)]
mod tests;
mod tracks;

pub use format::Format;
pub use subject::{Begin, Shown, Subject};

//! The figures of the screen for scripts, files and other programs, one module per format.

pub mod chrome;
pub mod csv;
pub mod folded;
mod format;
mod hdr;
pub mod hgrm;
pub mod hlog;
pub mod list;
mod moments;
#[cfg(any(feature = "native-histograms", feature = "otlp"))]
mod native;
pub mod openmetrics;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod perfetto;
#[cfg(feature = "otlp")]
pub mod push;
pub mod rows;
mod series;
pub mod serve;
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

use std::fmt::Write as _;

pub use format::Format;
pub use moments::AllocsAt;
pub use subject::{Begin, ExportedPoint, Subject};

/// Percent-encodes control characters, `%` and characters that are `special`, byte by byte, as in
/// URLs. Different names stay different.
fn escape(name: &str, special: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(name.len());
    for c in name.chars() {
        if c != '%' && !c.is_control() && !special(c) {
            escaped.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

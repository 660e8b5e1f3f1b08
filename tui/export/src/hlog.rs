//! HdrHistogram's interval log, version 2: one interval from the creation of the segment to the
//! snapshot, with a histogram of exclusive times in nanoseconds for every point that has measured.
//! The greatest value, a column for human readers, is in milliseconds.
//!
//! A histogram's tag is the point's name. A tag must not contain a blank, comma or line end: these,
//! control characters and `%` are percent-encoded byte by byte, as in URLs. If there are several
//! processes, the process with its id and a slash precede the name.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};

use super::subject::Subject;
use super::{escape, hdr};

/// Nanoseconds in the unit of the greatest value's column.
const NS_IN_MS: f64 = 1e6;

/// Writes the log.
pub fn write(subject: &Subject<'_>, mut out: &mut dyn Write) -> io::Result<()> {
    let process = &subject.snapshot().process;
    let started = UNIX_EPOCH + Duration::from_nanos(process.started_unix_ns);
    let elapsed = Duration::from_nanos(subject.whole_ns(subject.snapshot().elapsed_ticks));
    // The first line that other writers use and some readers require.
    writeln!(out, "#[Histogram log format version 1.2]")?;
    let mut serializer = V2DeflateSerializer::new();
    let title = format!("exclusive time of the points of {process}, ns");
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&title.replace(char::is_control, " "))
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(NS_IN_MS)
        .begin_log_with(&mut out, &mut serializer)?;
    for point in hdr::histograms(subject) {
        let (shown, histogram) = point?;
        let name = match shown.figures.process() {
            Some(process) => format!("{process}/{}", shown.label),
            None => shown.label.clone(),
        };
        let name = escape(&name, |c| c == ' ' || c == ',');
        log.write_histogram(&histogram, Duration::ZERO, elapsed, Tag::new(&name)).map_err(
            |error| match error {
                IntervalLogWriterError::IoError(error) => error,
                other => io::Error::other(other.to_string()),
            },
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::tests::written;
    use pfp_model::Model;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    #[test]
    fn each_point_has_its_tag() {
        let mut source = Synthetic::new();
        source.snapshot_mut().points[1].name = "a, b\n50%\u{85}é".into();
        let model = Model::of(source.picture().unwrap());
        let text = String::from_utf8(written(Format::Hlog, &model, |_| true)).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(text.contains("#[StartTime: 1764000000.000 (seconds since epoch)]\n"), "{text}");
        assert!(lines[0].starts_with("Tag=a%2C%20b%0A50%25%C2%85é,0.000,751.000,"), "{text}");
        let used = model.points().iter().filter(|figures| figures.is_used()).count();
        assert_eq!(lines.len(), used, "{text}");
    }
}

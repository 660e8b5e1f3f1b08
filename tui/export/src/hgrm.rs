//! HdrHistogram's percentile distribution, as its plotters read it: one for every point that has
//! measured, exclusive time in microseconds.
//!
//! Each distribution begins with a comment that has the point's name. The mean and the standard
//! deviation are over all measurements, not from the histogram.

use std::io::{self, Write};

use hdrhistogram::Histogram;

use super::subject::Subject;
use super::{escape, hdr};
use pfp_model::Figures;

/// Number of lines for each halving of the distance to 100 %.
const TICKS: u32 = 5;
/// Values in one bucket of HdrHistogram, with three digits.
const SUB_BUCKETS: u32 = 2048;

/// Writes the distributions.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    for point in hdr::histograms(subject) {
        let (shown, histogram) = point?;
        let name = format!("{} of {}", shown.label, subject.process(shown.figures));
        // The name must stay on one line: further lines would be read as figures.
        let name = escape(&name, |_| false);
        writeln!(out, "#[Point = {name}, exclusive time, microseconds]")?;
        distribution(subject, shown.figures, &histogram, out)?;
    }
    Ok(())
}

fn distribution(
    subject: &Subject<'_>,
    figures: &Figures,
    histogram: &Histogram<u64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let us = |ns: f64| ns / 1000.0;
    writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    let mut sum = 0;
    for step in histogram.iter_quantiles(TICKS) {
        sum += step.count_since_last_iteration();
        let (value, share) = (us(step.value_iterated_to() as f64), step.quantile_iterated_to());
        match share < 1.0 {
            true => {
                writeln!(out, "{value:12.3} {share:2.12} {sum:10} {:14.2}", 1.0 / (1.0 - share))?
            }
            false => writeln!(out, "{value:12.3} {share:2.12} {sum:10}")?,
        }
    }
    let mean = us(subject.ns(figures.mean().unwrap_or(0.0)));
    let deviation = us(subject.ns(figures.deviation().unwrap_or(0.0)));
    let (max, count) = (us(histogram.max() as f64), histogram.len());
    writeln!(out, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]")?;
    writeln!(out, "#[Max     = {max:12.3}, Total count    = {count:12}]")?;
    writeln!(out, "#[Buckets = {:12}, SubBuckets     = {SUB_BUCKETS:12}]", histogram.buckets())
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::tests::written;
    use pfp_model::Model;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    #[test]
    fn each_point_has_its_distribution_up_to_all_of_its_calls() {
        let mut source = Synthetic::new();
        source.snapshot_mut().points[1].name = "a\n 1.000 0.5 1 2.00".into();
        let model = Model::of(source.picture().unwrap());
        let text = String::from_utf8(written(Format::Hgrm, &model, |_| true)).unwrap();
        let parts: Vec<_> = text.split("#[Point = ").skip(1).collect();
        let used: Vec<_> = model.points().iter().filter(|figures| figures.is_used()).collect();
        assert_eq!(parts.len(), used.len());
        assert!(parts[0].starts_with("a%0A 1.000 0.5 1 2.00 of my_app[4711], exclusive"), "{text}");
        for (part, figures) in parts.iter().zip(used) {
            let rows: Vec<Vec<f64>> = part
                .lines()
                .skip(2)
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .map(|line| line.split_whitespace().map(|f| f.parse().unwrap()).collect())
                .collect();
            assert!(rows.is_sorted_by(|a, b| a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2]));
            let (first, last) = (rows.first().unwrap(), rows.last().unwrap());
            let us = |ticks: u64| ticks as f64 / 2600.0;
            assert!((first[0] / us(figures.total().min) - 1.0).abs() < 2e-3, "{part}");
            assert!((last[0] / us(figures.total().max) - 1.0).abs() < 2e-3, "{part}");
            assert_eq!((last[1], last[2]), (1.0, figures.total().count as f64), "{part}");
            let median = rows.iter().find(|row| row[1] >= 0.5).unwrap()[0];
            let [p50] = figures.quantiles_at([0.5]).unwrap();
            assert!((median / us(p50) - 1.0).abs() < 0.04, "{median} {}", us(p50));
        }
    }
}

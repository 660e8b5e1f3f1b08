//! Small charts made of characters.

use super::Glyphs;
use pfp_model::LoadSlice;

/// Minimum load at full height of a trend, as a share of a CPU, so that the noise of an idle point
/// looks idle.
pub(crate) const MIN_TOP: f64 = 0.05;

/// One character per load, of full height at `top`. Gaps and zero loads stay blank. Full height
/// leaves an eighth free, so that trends in adjacent rows do not merge.
pub(crate) fn trend(loads: &[Option<f64>], top: f64, glyphs: &Glyphs) -> String {
    const FULL: usize = 7;
    let level = |load: f64| {
        let level = (load / top * FULL as f64).ceil() as usize;
        level.checked_sub(1).map_or(' ', |level| glyphs.levels[level.min(FULL - 1)])
    };
    loads.iter().map(|load| load.map_or(' ', level)).collect()
}

/// The greatest load; at least [`MIN_TOP`].
pub(crate) fn top(loads: impl Iterator<Item = Option<f64>>) -> f64 {
    loads.flatten().fold(MIN_TOP, f64::max)
}

/// Draws slices as columns that are `rows` lines high: filled up to the mean, and with another sign
/// from there up to the peak. Returns the lines from the top down. Each line is a list of pieces: a
/// text, and whether it is above the means.
pub(crate) fn columns(
    slices: &[Option<LoadSlice>],
    rows: usize,
    top: f64,
    glyphs: &Glyphs,
) -> Vec<Vec<(String, bool)>> {
    let eighths = |load: f64| ((load / top).clamp(0.0, 1.0) * (rows * 8) as f64).round() as usize;
    let cell = |slice: &Option<LoadSlice>, row: usize| match slice {
        None => (' ', false),
        Some(slice) => match eighths(slice.mean).checked_sub(row * 8) {
            Some(filled @ 1..) => (glyphs.levels[filled.min(8) - 1], false),
            _ if eighths(slice.peak) > row * 8 + 3 => (glyphs.peak, true),
            // A zero load is drawn, which distinguishes it from a gap.
            _ if row == 0 => (glyphs.levels[0], false),
            _ => (' ', false),
        },
    };
    let line = |row: usize| {
        let cells: Vec<_> = slices.iter().map(|slice| cell(slice, row)).collect();
        let pieces = cells.chunk_by(|a, b| a.1 == b.1);
        pieces.map(|cells| (cells.iter().map(|(c, _)| c).collect(), cells[0].1)).collect()
    };
    (0..rows).rev().map(line).collect()
}

/// A bar that fills `share` of `width` columns. Any share above zero is visible.
pub(crate) fn bar(share: f64, width: usize, glyphs: &Glyphs) -> String {
    let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let mut bar = glyphs.parts[7].to_string().repeat(eighths / 8);
    if eighths % 8 > 0 {
        bar.push(glyphs.parts[eighths % 8 - 1]);
    }
    bar
}

/// A bar of `share` within a bar of `whole`: the inner bar, and the signs that fill the rest of the
/// outer bar.
pub(crate) fn bar_in(share: f64, whole: f64, width: usize, glyphs: &Glyphs) -> [String; 2] {
    let columns = |share| bar(share, width, glyphs).chars().count();
    let more = columns(whole).saturating_sub(columns(share));
    [bar(share, width, glyphs), glyphs.rest.to_string().repeat(more)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_show_shape_gaps_and_floor() {
        let loads = [Some(0.0), Some(0.4), None, Some(0.8)];
        assert_eq!(trend(&loads, 0.8, &Glyphs::UNICODE), " ▄ ▇");
        assert_eq!(trend(&[Some(0.001)], MIN_TOP, &Glyphs::UNICODE), "▁");
        let slice = |mean| LoadSlice { mean, peak: mean };
        let slices = loads.map(|load| load.map(slice));
        let drawn = |slices: &[Option<LoadSlice>]| columns(slices, 2, 0.8, &Glyphs::UNICODE);
        let plain = |text: &str| vec![(text.to_owned(), false)];
        assert_eq!(drawn(&slices), [plain("   █"), plain("▁█ █")]);
        let peaks =
            [Some(LoadSlice { mean: 0.2, peak: 0.8 }), Some(LoadSlice { mean: 0.8, peak: 0.8 })];
        let (peak, full) = (("░".to_owned(), true), ("█".to_owned(), false));
        assert_eq!(drawn(&peaks), [vec![peak, full], plain("▄█")]);
        assert_eq!(bar(0.5, 4, &Glyphs::UNICODE), "██");
        assert_eq!(bar(0.001, 4, &Glyphs::UNICODE), "▏");
        assert_eq!(bar(0.0, 4, &Glyphs::UNICODE), "");
        assert_eq!(bar(9.0, 4, &Glyphs::ASCII), "####");
    }
}

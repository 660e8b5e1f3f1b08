//! The tests behind a verdict; [`super`] explains them and their sources.

use crate::PointWindow;

/// Share of the longest measurements that form the tail.
pub(super) const TAIL: f64 = 0.01;
/// The least expected number of tail measurements in each window.
const FEWEST_IN_TAIL: f64 = 10.0;

/// For each bucket that either window uses, the number of measurements of the first and of the
/// second window in it. Buckets are in rising order of their values.
pub(crate) fn side_by_side(before: &PointWindow, since: &PointWindow) -> Vec<(f64, f64)> {
    let mut both = Vec::with_capacity(before.spread.len().max(since.spread.len()));
    let (mut a, mut b) = (before.spread.iter().peekable(), since.spread.iter().peekable());
    loop {
        let next = [a.peek(), b.peek()].into_iter().flatten().map(|(number, _)| *number).min();
        let Some(number) = next else { return both };
        let a = a.next_if(|(at, _)| *at == number).map_or(0.0, |(_, count)| *count);
        let b = b.next_if(|(at, _)| *at == number).map_or(0.0, |(_, count)| *count);
        both.push((a, b));
    }
}

/// The result of the Mann-Whitney test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankTest {
    /// Probability that a measurement of the second window takes longer than one of the first.
    pub(super) superiority: f64,
    /// The standard deviation that `superiority` has by chance if the windows do not differ.
    pub(super) deviation: f64,
    /// Probability of at least this difference by chance.
    pub(super) p: f64,
}

/// Tests the counts in each bucket of the first and second window. `None` while either window is
/// empty.
pub(crate) fn rank_test(counts: &[(f64, f64)]) -> Option<RankTest> {
    let (mut a, mut b, mut u, mut ties) = (0.0, 0.0, 0.0, 0.0);
    for (in_a, in_b) in counts {
        u += in_b * (a + in_a / 2.0);
        a += in_a;
        b += in_b;
        let tied = in_a + in_b;
        ties += tied * tied * tied - tied;
    }
    if a <= 0.0 || b <= 0.0 {
        return None;
    }
    let (n, pairs) = (a + b, a * b);
    let variance = pairs / 12.0 * (n + 1.0 - ties / (n * (n - 1.0)));
    let deviation = variance.max(0.0).sqrt();
    let distance = ((u - pairs / 2.0).abs() - 0.5).max(0.0);
    // If all measurements are in one bucket, there is no difference.
    let p = if deviation > 0.0 { two_sided(distance / deviation) } else { 1.0 };
    Some(RankTest { superiority: u / pairs, deviation: deviation / pairs, p })
}

/// The result of [`tail_test`]: the share of each window in the common tail, and the probability of
/// at least this difference by chance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailTest {
    pub(super) before: f64,
    pub(super) since: f64,
    pub(super) p: f64,
}

/// Tests whether both windows have the same share in the tail. The tail is the longest hundredth of
/// the measurements of both windows, or a little less, since buckets are not divided. `None` if the
/// tail is expected to have too few measurements of either window.
pub(crate) fn tail_test(counts: &[(f64, f64)]) -> Option<TailTest> {
    let (a, b) = counts.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    let (mut tail_a, mut tail_b) = (0.0, 0.0);
    for (in_a, in_b) in counts.iter().rev() {
        if tail_a + tail_b + in_a + in_b > TAIL * (a + b) {
            break;
        }
        tail_a += in_a;
        tail_b += in_b;
    }
    let share = (tail_a + tail_b) / (a + b);
    if share * a.min(b) < FEWEST_IN_TAIL {
        return None;
    }
    let (before, since) = (tail_a / a, tail_b / b);
    let deviation = (share * (1.0 - share) * (1.0 / a + 1.0 / b)).sqrt();
    Some(TailTest { before, since, p: two_sided((since - before).abs() / deviation) })
}

/// Two-sided probability that a normal variable is more than `deviations` standard deviations from
/// its mean.
pub(crate) fn two_sided(deviations: f64) -> f64 {
    libm::erfc(deviations / std::f64::consts::SQRT_2)
}

/// P-values adjusted for their number, after Benjamini and Hochberg: the `i`th least of `m` values
/// is multiplied by `m / i`, and limited to the adjusted value of the next greater one.
pub(crate) fn adjusted(p_values: &[f64]) -> Vec<f64> {
    let m = p_values.len();
    let mut order: Vec<usize> = (0..m).collect();
    order.sort_by(|a, b| p_values[*b].total_cmp(&p_values[*a]));
    let mut adjusted = vec![1.0; m];
    let mut least: f64 = 1.0;
    for (place, index) in order.into_iter().enumerate() {
        least = least.min(p_values[index] * m as f64 / (m - place) as f64);
        adjusted[index] = least;
    }
    adjusted
}

//! Tests of the statistics against values that scipy computed, and against simulated chance.

use std::sync::Arc;

use super::*;
use crate::histogram::number_of;
use pfp_read::source::Source;
use pfp_read::source::synthetic::Synthetic;

/// Pairs of a value and the number of its occurrences.
type Counts<'a> = &'a [(u64, u32)];

fn window(counts: Counts) -> PointWindow {
    let values = counts.iter().flat_map(|(value, n)| std::iter::repeat_n(*value, *n as usize));
    window_of(values)
}

pub(super) fn window_of(values: impl Iterator<Item = u64>) -> PointWindow {
    let (mut window, mut spread) = (PointWindow::default(), std::collections::BTreeMap::new());
    for value in values {
        window.count += 1;
        window.exclusive += value as f64;
        *spread.entry(number_of(value)).or_insert(0.0) += 1.0;
    }
    window.spread = spread.into_iter().collect();
    window
}

pub(super) fn row(before: PointWindow, since: PointWindow) -> DiffRow {
    DiffRow::new((1, String::new()), before, since, Verdict::TooFew)
}

/// A process, and another one whose durations are twice as long.
pub(super) fn twice_as_long(mut source: Synthetic) -> (Baseline, Comparison) {
    let mut snapshots = source.polls(20);
    let mut other = snapshots.pop().unwrap();
    other.process.segment_id = "f".repeat(32);
    other.clock.ticks_per_second /= 2.0;
    other.elapsed_ticks /= 2;
    let baseline = Baseline::of(snapshots.pop().unwrap(), Some("a.json".into()));
    let comparison = Comparison::new(&baseline, &other).unwrap();
    (baseline, comparison)
}

#[track_caller]
fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-9, "{found} for {expected}");
}

/// The age of a dead process ends with its last activity.
#[test]
fn a_snapshot_after_death_is_later_than_one_before() {
    let mut snapshots = Synthetic::new().polls(20);
    let (mut dead, live) = (snapshots.pop().unwrap(), snapshots.pop().unwrap());
    for state in [ProcessState::Exited, ProcessState::Crashed, ProcessState::Ended] {
        dead.process.state = state;
        dead.elapsed_ticks = live.elapsed_ticks - 1;
        let comparison = Comparison::new(&Baseline::of(live.clone(), None), &dead);
        let comparison = comparison.expect("it is later");
        assert!(comparison.rows.iter().any(|row| row.since.count > 0), "{state:?}");
        let swapped = Comparison::new(&Baseline::of(dead.clone(), None), &live);
        assert!(swapped.is_none(), "{state:?}");
    }
}

/// scipy 1.17.1: `mannwhitneyu(since, before, alternative="two-sided",
/// method="asymptotic")`, statistic over the number of pairs, and p-value.
#[test]
fn the_rank_test_agrees_with_scipy() {
    let cases: [(Counts, Counts, f64, f64); 4] = [
        (
            &[(10, 5), (11, 20), (12, 30), (20, 5)],
            &[(10, 2), (11, 10), (12, 40), (13, 20), (20, 9)],
            0.693_930_041_152_263_4,
            2.382_071_764_956_803_3e-5,
        ),
        (&[(1, 30), (2, 30), (3, 30)], &[(1, 30), (2, 30), (3, 30)], 0.5, 1.0),
        (
            // These values are different, and also in different buckets.
            &[(10, 400), (11, 300), (14, 40), (30, 3)],
            &[(10, 350), (11, 340), (14, 60), (30, 12)],
            0.545_949_421_194_490_6,
            0.000_555_386_742_912_322_1,
        ),
        (&[(5, 50)], &[(9, 60)], 1.0, 1.683_447_885_763_553_4e-25),
    ];
    for (before, since, superiority, p) in cases {
        let found = rank_test(&side_by_side(&window(before), &window(since))).unwrap();
        close(found.superiority, superiority);
        close(found.p, p);
    }
}

/// scipy 1.17.1: `chi2_contingency([[10, 2990], [35, 2965]], correction=False)`, and with 50 of
/// 5000 and 12 of 2400.
#[test]
fn the_tail_test_agrees_with_scipy() {
    for (x, a, y, b, p) in [
        (10.0, 3000.0, 35.0, 3000.0, 0.00018341027328341254),
        (50.0, 5000.0, 12.0, 2400.0, 0.027_176_030_288_957_317),
    ] {
        close(tail_test(&[(a - x, b - y), (x, y)]).unwrap().p, p);
    }
    // The last bucket has more than a hundredth of the measurements, so there is no tail to test.
    assert!(tail_test(&[(990.0, 965.0), (10.0, 35.0)]).is_none());
    // The tail has fewer than ten measurements in each window.
    assert!(tail_test(&[(499.0, 499.0), (1.0, 1.0)]).is_none());
}

/// scipy 1.17.1: `false_discovery_control([...], method="bh")`.
#[test]
fn the_adjustment_agrees_with_scipy() {
    let found = adjusted(&[0.01, 0.04, 0.03, 0.005, 0.5, 0.03]);
    for (found, expected) in found.into_iter().zip([0.03, 0.048, 0.045, 0.03, 0.5, 0.045]) {
        close(found, expected);
    }
    assert_eq!(adjusted(&[]), [0.0; 0]);
}

/// Pseudo-random durations, log-normal as durations often are.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A duration with the median 10,000 times `factor`, whose logarithm has the standard deviation
    /// 0.6.
    fn duration(&mut self, factor: f64) -> u64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.uniform()).cos();
        (factor * 10_000.0 * (0.6 * normal).exp()) as u64
    }

    fn durations(&mut self, n: usize, factor: f64) -> PointWindow {
        window_of((0..n).map(|_| self.duration(factor)).collect::<Vec<_>>().into_iter())
    }
}

/// Both windows have 10 calls; those since the baseline allocate once more.
#[test]
fn allocations_per_call_are_compared() {
    let mut all: Vec<Snapshot> = Synthetic::new().polls(3);
    let text = |all: &[Snapshot]| {
        let baseline = Baseline::of(all[1].clone(), None);
        let comparison = Comparison::new(&baseline, &all[2]).unwrap();
        report::render(&baseline, &comparison)
    };
    assert!(!text(&all).contains("Alloc/call"), "{}", text(&all));
    for (snapshot, [calls, allocs]) in all.iter_mut().zip([[5, 0], [15, 20], [25, 50]]) {
        let place = snapshot.cells.iter().position(|cell| cell.point == 1).unwrap();
        let sums = &mut Arc::make_mut(&mut snapshot.cells[place]).allocs;
        (sums.calls, sums.allocs, sums.bytes) = (calls, allocs, 100 * allocs);
    }
    let window =
        |from: usize, to: usize| PointWindow::between(Some(&all[from]), &all[to], 1).unwrap();
    let (before, since) = (window(0, 1), window(1, 2));
    assert_eq!([before, since].map(|it| it.allocs_per_call()), [Some(2.0), Some(3.0)]);
    let heading = text(&all);
    assert!(heading.contains("Alloc/call") && heading.contains("B/call"), "{heading}");
}

fn differs(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Slower | Verdict::Faster | Verdict::SlowerTail | Verdict::FasterTail)
}

#[test]
fn p_values_of_pairs_without_a_difference_are_as_small_as_they_say() {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let rounds = 4000;
    let p_values: Vec<f64> = (0..rounds)
        .map(|round| {
            let (a, b) = (30 + round % 90, 50 + round % 300);
            let (before, since) = (chance.durations(a, 1.0), chance.durations(b, 1.0));
            rank_test(&side_by_side(&before, &since)).unwrap().p
        })
        .collect();
    for level in [0.01, 0.05, 0.2] {
        let found =
            p_values.iter().filter(|p| **p <= level).count() as f64 / f64::from(rounds as u32);
        // Four standard deviations of a share that is observed in `rounds` rounds.
        let margin = 4.0 * (level * (1.0 - level) / rounds as f64).sqrt();
        assert!((found - level).abs() < margin, "{found} at {level}");
    }
}

#[test]
fn false_differences_are_rare() {
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    let (mut screens, mut wrong) = (0, 0);
    for round in 0..150 {
        let mut rows: Vec<DiffRow> = (0..30)
            .map(|point| {
                let n = [25, 60, 200, 1200][(round + point) % 4];
                row(chance.durations(n, 1.0), chance.durations(n / 2 + 30, 1.0))
            })
            .collect();
        judge(&mut rows);
        screens += 1;
        wrong += usize::from(rows.iter().any(|row| differs(row.verdict)));
    }
    // At a level of 1 % for a whole screen, 1.5 of 150 screens are wrong on average, and more than
    // 7 in one of ten thousand such tests.
    assert!(wrong <= 7, "{wrong} of {screens} screens");
}

#[test]
fn repeated_comparisons_rarely_find_false_differences() {
    let mut chance = Chance(0x1234_5678_9abc_def1);
    let pairs = 100;
    let mut wrong = 0;
    for _ in 0..pairs {
        let before = chance.durations(3000, 1.0);
        let mut values = Vec::new();
        wrong += usize::from((0..40).any(|_| {
            values.extend((0..25).map(|_| chance.duration(1.0)));
            let mut rows = [row(before.clone(), window_of(values.iter().copied()))];
            judge(&mut rows);
            differs(rows[0].verdict)
        }));
    }
    // A single test would be wrong for one pair in a hundred.
    assert!(wrong <= 10, "{wrong} of {pairs}");
}

#[test]
fn real_differences_are_found_with_the_right_sign() {
    let mut chance = Chance(77);
    for _ in 0..20 {
        let mut rows = vec![
            row(chance.durations(4000, 1.0), chance.durations(3000, 1.25)),
            row(chance.durations(4000, 1.0), chance.durations(3000, 0.8)),
            row(chance.durations(4000, 1.0), chance.durations(3000, 1.0)),
            row(chance.durations(4000, 1.0), chance.durations(12, 3.0)),
            // There are too few measurements to distinguish a small difference from chance.
            row(chance.durations(40, 1.0), chance.durations(40, 1.0)),
            // The difference is significant, but too small to matter.
            row(chance.durations(90_000, 1.0), chance.durations(90_000, 1.02)),
        ];
        judge(&mut rows);
        let verdicts: Vec<_> = rows.iter().map(|row| row.verdict).collect();
        use Verdict::{Faster, NoDifference, Slower, TooFew};
        assert_eq!(verdicts, [Slower, Faster, NoDifference, TooFew, TooFew, NoDifference]);
    }
}

#[test]
fn a_growing_tail_is_found_without_other_changes() {
    let mut chance = Chance(5);
    let before: Vec<u64> = (0..20_000).map(|_| chance.duration(1.0)).collect();
    // Two in a hundred take ten times as long.
    let since = before.iter().enumerate().map(|(i, v)| if i % 50 == 0 { v * 10 } else { *v });
    let (before, since) = (window_of(before.iter().copied()), window_of(since));
    let mut rows = vec![row(before.clone(), since.clone()), row(since, before)];
    judge(&mut rows);
    assert_eq!(rows[0].verdict, Verdict::SlowerTail);
    assert_eq!(rows[1].verdict, Verdict::FasterTail);
    assert!((rows[0].superiority.unwrap() - 0.5).abs() < 0.02);
}

fn polls(n: usize) -> (Synthetic, Vec<Snapshot>) {
    let mut source = Synthetic::new();
    let snapshots = source.polls(n);
    (source, snapshots)
}

#[test]
fn an_unchanged_program_shows_no_difference() {
    let (_, s) = polls(33);
    let baseline = Baseline::of(s[16].clone(), None);
    let comparison = Comparison::new(&baseline, &s[32]).unwrap();
    assert_eq!(comparison.seconds, 16.0);
    assert_eq!(comparison.gone, 0);
    assert!(comparison.rows.len() > 5);
    let often = |row: &&DiffRow| row.since.count > 1000;
    for row in comparison.rows.iter().filter(often) {
        assert!(!differs(row.verdict), "{row:?}");
    }
    let size = |row: &DiffRow| row.load_change().unwrap().abs();
    assert!(comparison.rows.is_sorted_by(|a, b| size(a) >= size(b)));
}

#[test]
fn a_snapshot_compared_with_itself_or_an_earlier_one_is_nothing() {
    let (_, s) = polls(3);
    let baseline = Baseline::of(s[1].clone(), None);
    assert!(Comparison::new(&baseline, &s[1]).is_none());
    assert!(Comparison::new(&baseline, &s[0]).is_none());
    assert!(baseline.next(&s[1]).is_none());
    let next = baseline.next(&s[2]).unwrap();
    assert_eq!(next.seconds(), 1.0);
}

#[test]
fn another_process_is_compared_as_a_whole_and_by_names() {
    let (_, s) = polls(4);
    let mut other = s[3].clone();
    other.process.segment_id = "f".repeat(32);
    // The other process lacks a point, and its points have other ids and lines.
    other.points.retain(|point| point.name != "io.crc");
    for point in &mut other.points {
        point.id += 10;
        point.line += 7;
    }
    for cell in &mut other.cells {
        Arc::make_mut(cell).point += 10;
    }
    let baseline = Baseline::of(s[3].clone(), Some("a.json".into()));
    let comparison = Comparison::new(&baseline, &other).unwrap();
    assert_eq!(comparison.gone, 1);
    let (gone, rest): (Vec<&DiffRow>, Vec<&DiffRow>) =
        comparison.rows.iter().partition(|row| row.verdict == Verdict::Gone);
    let [gone] = gone[..] else { panic!("{gone:?}") };
    assert_eq!((gone.name.as_str(), gone.since.count), ("io.crc", 0));
    assert!(gone.load_change().unwrap() < 0.0 && other.points.iter().all(|p| p.id != gone.id));
    for row in rest {
        assert_eq!(row.before.spread, row.since.spread, "{}", row.name);
        assert_eq!(row.load_change(), Some(0.0));
        assert!(!differs(row.verdict));
    }
}

#[test]
fn a_point_that_the_baseline_does_not_know_is_new() {
    let (mut source, s) = polls(4);
    let mut base = s[3].clone();
    base.points.retain(|point| point.name != "io.read");
    let now = source.poll().unwrap();
    let comparison = Comparison::new(&Baseline::of(base, None), &now).unwrap();
    let new: Vec<&DiffRow> = comparison.rows.iter().filter(|r| r.verdict == Verdict::New).collect();
    let [new] = new[..] else { panic!("{new:?}") };
    assert_eq!((new.name.as_str(), new.before.count, comparison.gone), ("io.read", 0, 0));
    assert!(new.load_change().unwrap() > 0.0, "it comes by its load among the others");
}

#[test]
fn a_clock_of_another_rate_makes_no_difference() {
    let (_, s) = polls(12);
    let mut other = s[11].clone();
    other.process.segment_id = "f".repeat(32);
    let base = s[11].clone();
    // The same number of ticks at twice the rate takes half the time.
    other.clock.ticks_per_second *= 2.0;
    other.elapsed_ticks *= 2;
    let comparison = Comparison::new(&Baseline::of(base, None), &other).unwrap();
    let parse = comparison.rows.iter().find(|row| row.name == "io.parse").unwrap();
    assert_eq!(parse.verdict, Verdict::Faster);
    close(1.0 + parse.mean_change().unwrap(), 0.5);
    assert!((parse.quantile_change(0.5).unwrap() + 0.5).abs() < 0.02);
    close(parse.rate_change().unwrap() + 1.0, 1.0);
}

#[test]
fn rows_are_renewed_in_rotation_if_time_is_short() {
    let (_, s) = polls(6);
    let baseline = Baseline::of(s[0].clone(), None);
    let first = Comparison::new_within(1, &baseline, &s[1], None).unwrap();
    assert!(first.rows.iter().all(|row| row.ago == 0), "the first are all looked up");
    let n = first.rows.len();
    let ids = |comparison: &Comparison| {
        let mut ids: Vec<u32> = comparison.rows.iter().map(|row| row.id).collect();
        ids.sort_unstable();
        ids
    };
    let mut known = first.clone();
    for snapshot in &s[2..5] {
        known = Comparison::new_within(1, &baseline, snapshot, Some(known)).unwrap();
        assert_eq!(ids(&known), ids(&first));
    }
    let of_age = |age| known.rows.iter().filter(|row| row.ago == age).count();
    assert_eq!([0, 1, 2, 3].map(of_age), [1, 1, 1, n - 3], "one in each, the oldest first");
    for row in &known.rows {
        // Each row is correct for the window that it has.
        let then = &s[4 - row.ago as usize];
        let since = PointWindow::between(Some(&s[0]), then, row.id).unwrap();
        assert_eq!(row.since, since);
    }
    // For another process, no earlier row is reused.
    let mut other = s[5].clone();
    other.process.segment_id = "f".repeat(32);
    let other = Comparison::new_within(1, &baseline, &other, Some(known)).unwrap();
    assert!(other.rows.iter().all(|row| row.ago == 0));
}

/// Rows of points whose medians have changed by these factors.
fn moved(factors: &[f64]) -> Vec<DiffRow> {
    let mut chance = Chance(11);
    let rows = factors
        .iter()
        .map(|factor| row(chance.durations(2_000, 1.0), chance.durations(2_000, *factor)));
    let mut rows: Vec<DiffRow> = rows.collect();
    judge(&mut rows);
    rows
}

#[test]
fn a_common_change_is_attributed_to_the_machine() {
    let verdicts = |rows: &[DiffRow]| rows.iter().map(|row| row.verdict).collect::<Vec<_>>();
    // Most points change by about a fifth; the last but one changes by much more, and the last does
    // not change.
    let mut rows = moved(&[1.2, 1.22, 1.18, 1.2, 1.21, 1.19, 2.4, 1.0]);
    assert!(rows[..7].iter().all(|row| row.verdict == Verdict::Slower), "{:?}", verdicts(&rows));
    let common = judge_against_all(&mut rows).unwrap();
    assert!((0.1..0.3).contains(&common), "{common}");
    assert_eq!(verdicts(&rows)[..6], [Verdict::AsTheRest; 6]);
    assert_eq!(verdicts(&rows)[6], Verdict::Slower);
    assert!(!differs(verdicts(&rows)[7]));
    // If few of many points change, the cause is the program.
    let mut rows = moved(&[1.5, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(judge_against_all(&mut rows), None);
    assert_eq!(verdicts(&rows)[..2], [Verdict::Slower; 2]);
    // With few points in total, the cause is unknown.
    let mut rows = moved(&[1.5, 1.5, 1.5]);
    assert_eq!(judge_against_all(&mut rows), None);
    assert_eq!(verdicts(&rows), [Verdict::Slower; 3]);
}

//! What must hold of every cell that is shown as whole. A mixture of two states
//! of a cell breaks one of these with near certainty.

use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::histogram::LIMIT;
use pfp_shm_layout::reader::CellReading;

/// Checks a cell of one thread. `leaf` says that its point has no regions inside.
pub fn check(cell: &CellReading, leaf: bool) {
    for sums in [&cell.live, &cell.retired] {
        check_sums(sums, leaf);
    }
    let live = &cell.live;
    if live.count > 0 {
        assert!(live.min <= live.last && live.last <= live.max, "last out of range: {cell:?}");
    }
    let counted = live.count + cell.retired.count;
    assert!(counted <= cell.lifetime_count, "{cell:?}");
    assert!(in_histogram(cell) >= counted, "histogram behind its cell: {cell:?}");
}

/// Checks a cell that a dead process has left, wherever it died.
pub fn check_left(cell: &CellReading) {
    let counted = cell.live.count + cell.retired.count;
    let histogram = in_histogram(cell);
    check_sums(&cell.live, false);
    check_sums(&cell.retired, false);
    assert_eq!(histogram, counted, "the histogram has others than were counted: {cell:?}");
}

/// Checks a cell of the overflow lane that a dead process has left. With nothing under way
/// in it all figures are exact; else the sums of so many measurements may be there, one
/// after the other.
pub fn check_left_shared(cell: &CellReading, under_way: u64) {
    if under_way == 0 {
        return check_left(cell);
    }
    let counted = cell.live.count + cell.retired.count;
    let histogram = in_histogram(cell);
    assert!((counted..=counted + under_way).contains(&histogram), "{histogram}: {cell:?}");
    let sums = &cell.live;
    let (count, most) = (u128::from(sums.count), u128::from(sums.count + under_way));
    if count > 0 {
        // What was counted is in each sum, whatever else is; the extremes go before the squares.
        let [min, max] = [sums.min, sums.max].map(u128::from);
        assert!(min <= max && count * min <= u128::from(sums.exclusive), "{sums:?}");
        assert!((count * min * min..=most * max * max).contains(&sums.squares), "{sums:?}");
    }
}

fn check_sums(sums: &Sums, leaf: bool) {
    let (count, exclusive) = (u128::from(sums.count), u128::from(sums.exclusive));
    if count == 0 {
        assert_eq!((sums.exclusive, sums.squares, sums.max), (0, 0, 0), "{sums:?}");
        return;
    }
    let (min, max) = (u128::from(sums.min), u128::from(sums.max));
    assert!(min <= max, "{sums:?}");
    assert!(count * min <= exclusive && exclusive <= count * max, "{sums:?}");
    assert!(count * min * min <= sums.squares && sums.squares <= count * max * max, "{sums:?}");
    // Cauchy and Schwarz.
    assert!(sums.squares * count >= exclusive * exclusive, "{sums:?}");
    assert!(sums.inclusive >= sums.exclusive, "{sums:?}");
    // A measurement that long is exclusive for no longer.
    if leaf && sums.max < LIMIT - 1 {
        assert_eq!(sums.inclusive, sums.exclusive, "nothing was nested: {sums:?}");
    }
}

/// Measurements in a cell's histogram.
#[must_use]
pub fn in_histogram(cell: &CellReading) -> u64 {
    cell.histogram.iter().map(|bucket| bucket.count).sum()
}

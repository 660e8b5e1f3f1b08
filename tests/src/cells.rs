//! Checks that hold for every cell that a reader accepts as consistent. A mixture of two states of
//! a cell fails one of them with near certainty.

use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::histogram::LIMIT;
use pfp_shm_layout::reader::CellReading;

/// Checks the cell of one thread. `leaf` means that its point has no nested regions.
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

/// Checks a cell of a process that died at any moment.
pub fn check_left(cell: &CellReading) {
    let counted = cell.live.count + cell.retired.count;
    let histogram = in_histogram(cell);
    check_sums(&cell.live, false);
    check_sums(&cell.retired, false);
    assert_eq!(histogram, counted, "the histogram has others than were counted: {cell:?}");
}

/// Checks a cell of the overflow lane of a process that died. If `under_way` is 0, all figures are
/// exact. Otherwise the sums may include up to `under_way` measurements that the count lacks.
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
        // Each counted measurement is in every sum. The writer updates the extremes before the
        // squares.
        let [min, max] = [sums.min, sums.max].map(u128::from);
        assert!(min <= max && count * min <= u128::from(sums.exclusive), "{sums:?}");
        // A thread that was killed between its writes to the two words of the squares has not added
        // the carry to the second word.
        let carried = [sums.squares, sums.squares + (1 << 64)];
        let range = count * min * min..=most * max * max;
        assert!(carried.iter().any(|squares| range.contains(squares)), "{sums:?}");
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
    // The Cauchy-Schwarz inequality.
    assert!(sums.squares * count >= exclusive * exclusive, "{sums:?}");
    assert!(sums.inclusive >= sums.exclusive, "{sums:?}");
    // Without nested regions, exclusive and inclusive ticks are equal, unless a measurement was
    // clamped.
    if leaf && sums.max < LIMIT - 1 {
        assert_eq!(sums.inclusive, sums.exclusive, "nothing was nested: {sums:?}");
    }
}

/// The number of measurements in a cell's histogram.
#[must_use]
pub fn in_histogram(cell: &CellReading) -> u64 {
    cell.histogram.iter().map(|bucket| bucket.count).sum()
}

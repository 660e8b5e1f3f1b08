//! Reads a stored segment, and builds the figures that are expected in it.

use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::reader::{BucketCount, CellReading, Picture, Reader};
use pfp_shm_layout::segment::Segment;

pub(crate) fn reader(file: &[u8]) -> Reader {
    let (segment, facts) = Segment::from_copy(file).expect("the file is a segment");
    Reader::new(segment, facts)
}

/// Sums with these values for count, exclusive, inclusive, least, most and last ticks, and squares;
/// all others are zero.
pub(crate) fn sums([count, exclusive, inclusive, min, max, last]: [u64; 6], squares: u128) -> Sums {
    Sums { count, exclusive, inclusive, min, max, last, squares, ..Sums::default() }
}

pub(crate) fn none() -> Sums {
    sums([0, 0, 0, u64::MAX, 0, 0], 0)
}

pub(crate) fn cell(picture: &Picture, lane: u32, point: u32) -> &CellReading {
    let mut found = picture.cells.iter().filter(|cell| (cell.lane, cell.point) == (lane, point));
    let cell = found.next().unwrap_or_else(|| panic!("lane {lane} has no cell of point {point}"));
    assert!(found.next().is_none(), "lane {lane} has two cells of point {point}");
    cell
}

/// The buckets of a cell as least value, width and count.
pub(crate) fn buckets(cell: &CellReading) -> Vec<[u64; 3]> {
    let bucket = |BucketCount { low, width, count }| [low, width, count];
    cell.histogram.iter().map(bucket).collect()
}

//! The second stored segment of layout version 3.0, `assets/segment-v3-amounts.pfp`: amounts, a
//! device's time, and losses read as they were written. `examples/golden/amounts.rs` writes the
//! file, and the figures here are worked out by hand from the steps in that example.
//!
//! `golden.rs` tests damaged copies, of the first stored segment.

#![cfg(target_endian = "little")]

#[path = "golden/figures.rs"]
mod figures;

use figures::{buckets, cell, none, reader, sums};
use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::control::Control;
use pfp_shm_layout::reader::{AmountTuple, CellReading, Losses, Picture};
use pfp_shm_layout::segment::Segment;

static GOLDEN: &[u8] = include_bytes!("../../assets/segment-v3-amounts.pfp");

const KI: u64 = 1 << 10;
const COPY: u32 = 64;
const DEVICE: u32 = 65;
/// Tuple for copies of 4,096 bytes; `LINES` is the tuple for copies of 64 bytes.
const BLOCKS: u32 = 66;
const LINES: u32 = 67;
/// Tuple for copies of 128 bytes, which was never measured.
const UNUSED: u32 = 68;
const STEP: u32 = 69;
const LAST: u32 = 77;

/// The reading of a metered point's own cell, which sums the measurements that have no tuple.
fn own(picture: &Picture, lane: u32, point: u32) -> &CellReading {
    of_metered(picture, lane, point, true)
}

/// The sum of a metered point's own cell and its tuples' cells.
fn summed(picture: &Picture, lane: u32, point: u32) -> &CellReading {
    of_metered(picture, lane, point, false)
}

fn of_metered(picture: &Picture, lane: u32, point: u32, is_part: bool) -> &CellReading {
    let place = (lane, point, is_part);
    let mut found = picture.cells.iter().filter(|it| (it.lane, it.point, it.is_part) == place);
    let cell = found.next().expect("it was measured");
    assert!(found.next().is_none(), "{cell:?}");
    cell
}

/// The sums of amounts: for the lane's owner, and for earlier owners.
fn amounts(cell: &CellReading) -> [Amounts; 2] {
    [cell.live_amounts, cell.retired_amounts]
}

const NOTHING: [Amounts; 2] = [[0; 4]; 2];

/// Byte sums of a lane's owner, and of earlier owners.
const fn bytes(live: u64, retired: u64) -> [Amounts; 2] {
    [[live, 0, 0, 0], [retired, 0, 0, 0]]
}

#[test]
fn the_version_is_3_0() {
    assert_eq!(GOLDEN[8..16], [4, 3, 2, 1, 3, 0, 0, 0]);
}

#[test]
fn the_losses_read_as_they_were_written() {
    let mut reader = reader(GOLDEN);
    let picture = reader.poll();
    assert_eq!(picture.name, "golden amounts");
    let losses =
        Losses { lanes_overflowed: 1, begins_missed: 6, records_missed: 5, ..Losses::default() };
    assert_eq!(picture.losses, losses);
    let of_lanes = picture.lanes.iter().map(|lane| (lane.id, lane.errors.records_missed));
    assert_eq!(of_lanes.collect::<Vec<_>>(), [(0, 2), (1, 0), (2, 3)]);
}

#[test]
fn the_points_read_as_they_were_written() {
    let mut reader = reader(GOLDEN);
    let points = &reader.poll().points;
    let facts = |id: u32| {
        let point = points.iter().find(|point| point.id == id).expect("it was entered");
        (&*point.name, point.line, point.device, point.control)
    };
    let on_and_reset = Control(1 | 1 << 36);
    assert_eq!(facts(COPY), ("copy", 10, false, on_and_reset));
    assert_eq!(facts(DEVICE), ("gpu:copy", 20, true, Control(1)));
    assert_eq!(facts(STEP), ("step", 30, false, on_and_reset));
    assert!(points.iter().map(|point| point.id).eq(COPY..=LAST));

    let names: Vec<_> = points.iter().map(|point| point.amounts.join(" ")).collect();
    let named = |id: u32| match id {
        COPY => "bytes",
        STEP => "items errors cost",
        _ => "",
    };
    assert_eq!(names, points.iter().map(|point| named(point.id)).collect::<Vec<_>>());
    let tuple = |id: u32| points.iter().find(|point| point.id == id).and_then(|point| point.tuple);
    assert_eq!([COPY, DEVICE, STEP].map(tuple), [None; 3]);
    assert_eq!(tuple(BLOCKS), Some(AmountTuple { of: COPY, each: [4096, 0, 0, 0] }));
    assert_eq!(tuple(LINES), Some(AmountTuple { of: COPY, each: [64, 0, 0, 0] }));
    assert_eq!(tuple(UNUSED), Some(AmountTuple { of: COPY, each: [128, 0, 0, 0] }));
    for items in 0..8 {
        let each = [items, 0, u64::MAX - items, 0];
        assert_eq!(tuple(STEP + 1 + items as u32), Some(AmountTuple { of: STEP, each }));
    }
}

#[test]
fn the_cells_read_as_they_were_written() {
    let mut reader = reader(GOLDEN);
    let picture = reader.poll();

    // Measurements of 100, 100 and 130 ticks with 5 child ticks; a reset; 110 twice.
    let blocks = cell(picture, 0, BLOCKS);
    assert_eq!(blocks.live, sums([2, 220, 220, 110, 110, 110], 24_200));
    assert_eq!((&blocks.retired, amounts(blocks)), (&none(), NOTHING));
    assert_eq!((blocks.lifetime_count, blocks.lifetime_exclusive), (5, 550));
    assert_eq!(buckets(blocks), [[108, 4, 2]]);

    // Measurements of 50 and 60 ticks, before the reset.
    let lines = cell(picture, 0, LINES);
    assert_eq!((&lines.live, &lines.retired), (&none(), &none()));
    assert_eq!((lines.lifetime_count, lines.lifetime_exclusive), (2, 110));
    assert_eq!((buckets(lines), amounts(lines)), (vec![], NOTHING));

    // Measurements of 1,000 and 2,000 ticks; a reset; 1,500 with 5 Ki and 2,500 with 7 Ki.
    let any = own(picture, 0, COPY);
    assert_eq!(any.live, sums([2, 4_000, 4_000, 1_500, 2_500, 2_500], 8_500_000));
    assert_eq!((&any.retired, amounts(any)), (&none(), bytes(12 * KI, 0)));
    assert_eq!((any.lifetime_count, any.lifetime_exclusive), (4, 7_000));
    assert_eq!(buckets(any), [[1_472, 32, 1], [2_464, 64, 1]]);

    // All measurements of the point `copy` on the lane.
    let copy = summed(picture, 0, COPY);
    assert_eq!(copy.live, sums([4, 4_220, 4_220, 110, 2_500, 2_500], 8_524_200));
    assert_eq!((copy.lifetime_count, copy.lifetime_exclusive), (11, 7_660));
    assert_eq!(buckets(copy), [[108, 4, 2], [1_472, 32, 1], [2_464, 64, 1]]);

    let device = cell(picture, 0, DEVICE);
    let expected = sums([2, 120_000, 120_000, 50_000, 70_000, 70_000], 7_400_000_000);
    assert_eq!((&device.live, &device.retired), (&expected, &none()));
    assert_eq!(buckets(device), [[49_120, 1_024, 1], [69_600, 2_048, 1]]);

    // Measurements of 300 and 400 ticks; the program died while it applied a reset.
    let steps = own(picture, 0, STEP);
    assert_eq!((&steps.live, &steps.retired, amounts(steps)), (&none(), &none(), NOTHING));
    assert_eq!((steps.lifetime_count, steps.lifetime_exclusive), (2, 700));
    assert!(buckets(steps).is_empty());

    // The first owner measured 40 ticks once, after the reset, and the second measured nothing.
    let lines = cell(picture, 1, LINES);
    assert_eq!((&lines.live, &lines.retired), (&none(), &sums([1, 40, 40, 40, 40, 40], 1_600)));
    assert_eq!((buckets(lines), amounts(lines)), (vec![[40, 2, 1]], NOTHING));

    // The first owner measured 700 and 710 ticks with 1,000 and 2,000 bytes, the second 800 with
    // 4,000.
    let any = own(picture, 1, COPY);
    assert_eq!(any.live, sums([1, 800, 800, 800, 800, 800], 640_000));
    assert_eq!(any.retired, sums([2, 1_410, 1_410, 700, 710, 0], 994_100));
    assert_eq!(amounts(any), bytes(4_000, 3_000));
    assert_eq!(any.all_owners().1, [7_000, 0, 0, 0]);
    assert_eq!(buckets(any), [[688, 16, 1], [704, 16, 1], [800, 16, 1]]);

    let copy = summed(picture, 1, COPY);
    assert_eq!(copy.live, sums([1, 800, 800, 800, 800, 800], 640_000));
    let retired = &copy.retired;
    assert_eq!((retired.count, retired.exclusive, retired.min, retired.max), (3, 1_450, 40, 710));

    // Threads without a lane measured 95 ticks once, and 90 twice with 10 and 20 bytes.
    let blocks = cell(picture, 2, BLOCKS);
    assert_eq!((&blocks.live, amounts(blocks)), (&sums([1, 95, 95, 95, 95, 95], 9_025), NOTHING));
    let any = own(picture, 2, COPY);
    let expected = sums([2, 180, 180, 90, 90, 90], 16_200);
    assert_eq!((&any.live, amounts(any)), (&expected, bytes(30, 0)));
    assert_eq!(buckets(any), [[90, 2, 2]]);
    let copy = summed(picture, 2, COPY);
    assert_eq!((copy.live.count, copy.live.exclusive), (3, 275));

    assert_eq!(picture.cells.len(), 5 + 2 + 2 + 1 + 2 + 1);
    let is_part = |cell: &&CellReading| cell.is_part;
    assert_eq!(picture.cells.iter().filter(is_part).count(), 4 + 2 + 2);
}

/// A record of a tuple counts for the metered point.
#[test]
fn the_records_read_as_they_were_written() {
    let mut reader = reader(GOLDEN);
    reader.poll();
    let records = reader.records();
    let count = |lane, point| {
        records.iter().filter(|(at, record)| (*at, record.point) == (lane, point)).count()
    };
    assert_eq!((count(0, COPY), count(0, STEP), count(1, COPY)), (11, 2, 4));
    assert_eq!(records.len(), 17);
}

/// A copy of a copy is byte for byte the file, including the sums.
#[test]
fn a_copy_is_byte_for_byte_the_same() {
    let (segment, _) = Segment::from_copy(GOLDEN).expect("the file is a segment");
    assert!(segment.to_copy().expect("there is memory") == GOLDEN);
}

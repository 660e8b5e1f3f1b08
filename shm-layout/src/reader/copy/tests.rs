//! Tests copies of segments that threads write to, copies that are cut short, and copies that claim
//! too much.

use super::*;
use crate::discovery::name::Name;
use crate::discovery::object;
use crate::layout::calls::ROOT;
use crate::layout::control::{Change, Control};
use crate::layout::geometry::{Config, RING_BLOCKS};
use crate::layout::ring::What;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const POINT: usize = 64;

/// A segment with one lane, which has a ring and a cell of a point.
fn program(facts: &Facts) -> (Segment, Name, u64, u64) {
    program_in(Config::default(), facts)
}

fn program_in(config: Config, facts: &Facts) -> (Segment, Name, u64, u64) {
    let name = Name::random().unwrap();
    let segment = Segment::create(name, config, facts, |_| {}).unwrap();
    segment.enter_point(Some(POINT), POINT, "a point", "copy.rs", 1).unwrap();
    let word = segment.control(POINT).unwrap();
    word.store(Control::default().with(Change::Enable).0, Relaxed);
    let lane = segment.back_lane(0).unwrap().unwrap();
    let generation = lane.claim().unwrap();
    let [cells, ring] =
        [segment.take_blocks(1).unwrap(), segment.take_blocks(RING_BLOCKS).unwrap()];
    // Most blocks have no memory, as in a program that has just begun.
    segment.reserve_blocks(10).unwrap();
    let chunk = segment.take_blocks(1).unwrap();
    let chunk = segment.block_offset(chunk).unwrap() / CHUNK;
    let block = segment.cell_block(cells).unwrap();
    let cell = block.cell(0);
    cell.prepare(POINT as u32, Control(word.load(Relaxed)), generation);
    (0..PARTS).for_each(|part| cell.set_part(part, (chunk + part) as u32));
    block.set_used(1);
    lane.set_cells_block(cells);
    lane.set_ring_block(ring);
    lane.announce(generation, 7, 1, b"main");
    (segment, name, cells, ring)
}

/// Records equal measurements, one after another, until `stop`. Two pages of three are folded; the
/// measurements of every third page are recorded singly.
fn work(segment: &Segment, cells: u64, ring: u64, stop: &AtomicBool, most: u64) -> u64 {
    const PAGE: u64 = 128;
    use crate::layout::cell::{Measurement, add};
    let cell = segment.cell_block(cells).unwrap().cell(0);
    let slots = segment.ring(ring).unwrap();
    let counters = &segment.lane(0).unwrap().counters;
    let (part, bucket) = crate::layout::histogram::locate(100);
    let bucket = &segment.chunk(cell.part(part)).unwrap().0[bucket];
    let (mut n, mut folded) = (0, 0);
    while n < most && !stop.load(Relaxed) {
        if n % PAGE == 0 && folded < n {
            let mut live = cell.stage();
            for _ in folded..n {
                live.add(cell.control(), 100, 150);
                add(bucket, 1);
            }
            cell.publish(&live, None, n);
            ring::announce_folded(&counters.folded, n);
            folded = n;
        }
        let is_direct = n / PAGE % 3 == 2;
        if is_direct {
            let measured = Measurement { exclusive: 100, inclusive: 150, away: None };
            cell.record(measured, Some(bucket), n);
            folded = n + 1;
        }
        ring::reuse();
        let (slot, what) =
            (&slots[n as usize % RING_SLOTS], What::new(POINT as u32, 0, ROOT, n as u32));
        if is_direct {
            slot.fill_counted(1_000 + n, n, 100, what);
        } else {
            slot.fill(1_000 + n, n, 100, 150, what);
        }
        n += 1;
        counters.written.publish(n);
    }
    n
}

fn copied(segment: &Segment, note: Option<&Note>) -> Vec<u8> {
    let mut out = Dense(Vec::new());
    SegmentCopy::of(segment).unwrap().write(&mut out, note).unwrap();
    out.0
}

/// A copy contains every backed page of the object, and copying backs no further page.
#[test]
fn a_copy_takes_no_memory_of_the_object() {
    let facts = Facts { pid: 5, ..Facts::default() };
    let (segment, name, cells, ring) = program(&facts);
    work(&segment, cells, ring, &AtomicBool::new(false), 3_000);
    let before = object::backed_bytes(&name).unwrap().unwrap();
    let (opened, _) = Segment::open(&name).unwrap();
    let note = Note { taken_unix_ns: 3, taken_monotonic_ns: 4, runs: true };
    let folder = std::env::temp_dir().join(format!("pfp-copy-{}", name.hex()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("copy");
    let mut file = WholeFile::create(&path, crate::atomic_file::Existing::Keep).unwrap();
    let copy = SegmentCopy::of(&opened).unwrap();
    copy.write(&mut file, Some(&note)).unwrap();
    file.finish().unwrap();
    assert_eq!(object::backed_bytes(&name).unwrap(), Some(before));
    // An opened segment can be copied even after the name of its object is gone.
    object::unlink(&name).unwrap();
    let again = copied(&opened, Some(&note));
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes == again);

    let file = File::open(&path).unwrap();
    let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
    let (read, read_facts, read_note) = super::read(&file).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(blocks * 512 <= before + 64 * 1024, "{blocks} blocks for {before} bytes");
    assert_eq!((read_facts.pid, read_note), (5, Some(note)));
    let (parsed, _, parsed_note) = read_from(&bytes[..]).unwrap();
    assert_eq!(parsed_note, Some(note));
    for segment in [read, parsed] {
        let mut reader = crate::reader::Reader::new(segment, facts.clone());
        let picture = reader.poll();
        assert_eq!(picture.points[0].name, "a point");
        assert_eq!(picture.cells[0].live.count, 3_000);
        let counted: u64 = picture.cells[0].histogram.iter().map(|bucket| bucket.count).sum();
        assert_eq!(counted, 3_000);
        let records: Vec<_> = reader.records().iter().map(|(_, record)| record.span).collect();
        assert!(records.into_iter().eq(3_000 - (RING_SLOTS as u64 - 1)..3_000));
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Each copy of a busy thread is whole: its figures belong together, its histogram misses no call,
/// its records follow one another.
#[test]
fn a_busy_segment_is_copied_whole() {
    let facts = Facts::default();
    let (segment, name, cells, ring) = program(&facts);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&segment, cells, ring, &stop, u64::MAX));
        // The worker ends even if the test fails.
        let stop = Stop(&stop);
        let (opened, _) = Segment::open(&name).unwrap();
        let (mut seen, mut kept, mut round) = (0, 0, 0);
        // On a busy machine the worker may begin late.
        while round < 100 || (seen == 0 || kept == 0) && round < 100_000 {
            round += 1;
            let (copy, _, note) = read_from(&copied(&opened, None)[..]).unwrap();
            assert_eq!(note, None);
            let mut reader = crate::reader::Reader::new(copy, facts.clone());
            let Some(cell) = reader.poll().cells.first() else { continue };
            let live = &cell.live;
            assert_eq!([live.exclusive, live.inclusive], [live.count * 100, live.count * 150]);
            assert_eq!(live.squares, u128::from(live.count) * 10_000);
            let counted: u64 = cell.histogram.iter().map(|bucket| bucket.count).sum();
            assert!(counted >= live.count, "{counted} of {}", live.count);
            assert!(live.count >= seen);
            seen = live.count;
            let records = reader.records();
            for (_, record) in &records {
                assert_eq!((record.start, record.exclusive), (record.span + 1_000, 100));
                assert_eq!(record.context, record.span as u32 & 0xff_ffff);
            }
            assert!(records.is_sorted_by_key(|(_, record)| record.start));
            kept += records.len();
        }
        drop(stop);
        let written = worker.join().unwrap();
        assert!(0 < seen && seen <= written && kept > 0, "{seen} of {written}, {kept} records");
    });
    object::unlink(&name).unwrap();
}

/// A segment with room for far more points and lanes than are used is not damaged.
#[test]
fn a_copy_of_a_segment_with_much_room_is_read() {
    let room = Config { points: 1 << 20, lanes: 1 << 16, ..Config::default() };
    let (segment, name, cells, ring) = program_in(room, &Facts::default());
    work(&segment, cells, ring, &AtomicBool::new(false), 1);
    let path = std::env::temp_dir().join(format!("pfp-room-{}", name.hex()));
    let mut file = WholeFile::create(&path, crate::atomic_file::Existing::Keep).unwrap();
    SegmentCopy::of(&segment).unwrap().write(&mut file, None).unwrap();
    let bytes = copied(&segment, None);
    object::unlink(&name).unwrap();
    file.finish().unwrap();
    let file = File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for copy in [super::read(&file), read_from(&bytes[..])] {
        let (copy, facts, _) = copy.unwrap();
        let mut reader = crate::reader::Reader::new(copy, facts);
        assert_eq!(reader.poll().cells[0].live.count, 1);
    }
}

/// A copy that ends early is refused wherever it ends.
#[test]
fn a_copy_that_is_cut_is_refused() {
    let (segment, name, cells, ring) = program(&Facts::default());
    work(&segment, cells, ring, &AtomicBool::new(false), 1);
    let whole = copied(&segment, None);
    object::unlink(&name).unwrap();
    assert!(read_from(&whole[..]).is_ok());
    for len in [0, 1, 2 * PAGE - 1, 2 * PAGE, CHUNK_OF_FILE, whole.len() - 1] {
        let refused = read_from(&whole[..len]).err();
        assert!(matches!(refused, Some(OpenError::Format(_))), "{len}: {refused:?}");
    }
}

/// A small file that claims a large segment costs little memory and time.
#[test]
fn a_file_of_holes_is_refused() {
    let (segment, name, ..) = program(&Facts::default());
    let (opened, _) = Segment::open(&name).unwrap();
    let mut copy = copied(&opened, None);
    drop(segment);
    object::unlink(&name).unwrap();
    let path = std::env::temp_dir().join(format!("pfp-holes-{}", name.hex()));
    let at = PAGE + std::mem::offset_of!(crate::layout::header::ProcessCounters, blocks_used);
    copy[at..at + 8].copy_from_slice(&15_999_u64.to_ne_bytes());
    copy.truncate(2 * PAGE);
    std::fs::write(&path, &copy).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(1 << 28).unwrap();
    let blocks = FormatError::Geometry { section: "blocks" };
    let zeros = io::repeat(0).take((1 << 28) - copy.len() as u64);
    for refused in [super::read(&file), read_from(copy.chain(zeros))] {
        let refused = refused.map(|(segment, ..)| *segment.geometry());
        assert!(matches!(refused, Err(OpenError::Format(error)) if error == blocks));
    }
    file.set_len(PAGE as u64).unwrap();
    let refused = super::read(&file).map(|(segment, ..)| *segment.geometry());
    assert!(matches!(refused, Err(OpenError::Format(FormatError::TooShort { .. }))));
}

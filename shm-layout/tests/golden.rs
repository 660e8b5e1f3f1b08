//! The stored segment of layout version 3.0, `assets/segment-v3.pfp`: its figures read as they were
//! written, and damaged copies are refused, or read in bounded time without a panic.
//!
//! `examples/golden.rs` writes the file. The figures here are worked out by hand from the steps in
//! that example.

#![cfg(target_endian = "little")]

#[path = "golden/figures.rs"]
mod figures;

use figures::{buckets, cell, none, reader, sums};
use pfp_shm_layout::calls::{CallAllocs, CallSums, OpenPicture, ROOT};
use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::control::Control;
use pfp_shm_layout::geometry::{BLOCK, CELLS_PER_BLOCK, PAGE, RING_SLOTS};
use pfp_shm_layout::header::{ClockKind, Facts, FormatError};
use pfp_shm_layout::lane::LaneState;
use pfp_shm_layout::reader::{Call, ClockPicture, LaneCalls, Losses, Reader};
use pfp_shm_layout::ring::Record;
use pfp_shm_layout::segment::Segment;

static GOLDEN: &[u8] = include_bytes!("../../assets/segment-v3.pfp");

/// Offset of the pool of blocks.
const POOL: usize = 32 * 1024;
/// Number of blocks in use, including the unused block 0: 2 lanes of 4 + 1 + 1, 1 shared, and the
/// calls of a lane.
const USED: usize = 17;

#[test]
fn the_header_reads_as_it_was_written() {
    let reader = reader(GOLDEN);
    let facts = Facts {
        id: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        boot_id: 0x8899_aabb_ccdd_eeff_1021_3243_5465_7687,
        pid: 4711,
        start_time: 123_456,
        pid_namespace: 4_026_531_836,
        created_unix_ns: 1_700_000_000_000_000_000,
        created_ticks: 1_000_000,
        created_monotonic_ns: 5_000_000_000,
        exe: "/usr/bin/gölden".into(),
        host: "host.example".into(),
        ..Facts::default()
    };
    assert_eq!(*reader.facts(), facts);
    let geometry = reader.segment().geometry();
    assert_eq!((geometry.points(), geometry.lanes(), geometry.string_bytes()), (128, 3, 4096));
    assert_eq!((geometry.blocks(), geometry.blocks_present()), (32, USED));
    assert_eq!((GOLDEN.len(), geometry.len()), (POOL + USED * BLOCK, GOLDEN.len()));
}

#[test]
fn the_clock_and_the_losses_read_as_they_were_written() {
    let mut reader = reader(GOLDEN);
    let picture = reader.poll();
    assert_eq!((picture.exited, picture.name.as_str()), (false, "golden"));
    let clock = ClockPicture {
        kind: ClockKind::Rseq,
        ticks_per_second: 2_300_000_500.0,
        reported_ticks_per_second: Some(2_300_000_000.0),
        core_hz: Some(3_500_000_000.0),
        invariant: true,
        system_clock: false,
        overhead_inside: 22,
        overhead_pair: 51,
    };
    assert_eq!(picture.clock, clock);
    let losses = Losses {
        points_refused: 1,
        space_refused: 1,
        lanes_overflowed: 2,
        // Mismatched ends of the first lane and of the overflow lane.
        mismatched_ends: 1 + 7,
        begins_refused: 2,
        clock_anomalies: 4,
        records_lost: 70,
        cells_busy: 0,
        // Only the file of `golden_amounts.rs` has losses of these kinds.
        begins_missed: 0,
        records_missed: 0,
    };
    assert_eq!(picture.losses, losses);
}

#[test]
fn the_points_read_as_they_were_written() {
    let mut reader = reader(GOLDEN);
    let points: Vec<_> = (reader.poll().points.iter())
        .map(|point| (point.id, &*point.name, &*point.file, point.line, point.control))
        .collect();
    const ON: u64 = 1;
    const INVALID: u64 = 2;
    const QUARTER: u64 = (1 << 18) << 15;
    const RESET_ONCE: u64 = 1 << 36;
    let expected = [
        (0, "overhead", "", 0, Control(ON)),
        (5, "period", "", 0, Control(INVALID)),
        (64, "parse", "src/parse.rs", 10, Control(ON | RESET_ONCE)),
        (65, "compress → 圧縮", "src/compress.rs", 20, Control(ON | QUARTER)),
        (66, "wait", "src/wait.rs", 30, Control(ON)),
        (67, "lookup", "src/lookup.rs", 40, Control(ON | RESET_ONCE)),
        (68, "never ran", "src/never.rs", 50, Control(0)),
    ];
    assert_eq!(points, expected);
    assert_eq!((expected[3].4.alpha(), expected[2].4.epoch()), (Some(0.25), 1));
    // Point 67 was reset, too, but its reset stored no time.
    let times = reader.poll().points.iter().filter_map(|point| Some((point.id, point.reset_ns?)));
    assert_eq!(times.collect::<Vec<_>>(), [(64, 6_500_000_000)]);
}

#[test]
fn the_lanes_read_as_they_were_written() {
    let mut reader = reader(GOLDEN);
    let lanes: Vec<_> = (reader.poll().lanes.iter())
        .map(|reading| {
            let lane = &reading.lane;
            let name = String::from_utf8_lossy(&lane.name).into_owned();
            let owner = (lane.state, lane.generation, lane.tid, lane.claimed);
            let blocks = (lane.ring_block, lane.cells_block);
            (reading.id, reading.overflow, name, owner, blocks, reading.written, reading.switches)
        })
        .collect();
    use LaneState::{Ended, Free, Live};
    let cut = "a name of 32 bytes is all we kee";
    let expected = [
        (0, false, "main", (Live, 1, 4711, 2_004_711), (1, 5), 2117, 3),
        (1, false, "Ärbeiter 2", (Live, 2, 4713, 2_004_713), (7, 11), 7, 0),
        (2, false, cut, (Ended, 1, 4714, 2_004_714), (0, 0), 0, 0),
        (3, true, "", (Free, 0, 0, 0), (0, 0), 0, 0),
    ];
    for (lane, (id, overflow, name, owner, blocks, written, switches)) in lanes.iter().zip(expected)
    {
        assert_eq!(*lane, (id, overflow, name.to_owned(), owner, blocks, written, switches));
    }
    assert_eq!(lanes.len(), expected.len());
}

#[test]
fn the_cells_read_as_they_were_written() {
    let mut reader = reader(GOLDEN);
    let picture = reader.poll();
    assert_eq!(picture.cells.len(), 7);

    // 2,100 measurements of 100 ticks, a reset, then 100, 110 ... 190; each has 5 child ticks.
    let parse = cell(picture, 0, 64);
    assert_eq!(parse.live, sums([10, 1_450, 1_500, 100, 190, 190], 218_500));
    assert_eq!(parse.retired, none());
    assert_eq!((parse.lifetime_count, parse.lifetime_exclusive), (2_110, 211_450));
    assert_eq!(parse.live.mean(), Some(145.0));
    let variance = parse.live.variance().expect("there are ten");
    assert!((variance - 8_250.0 / 9.0).abs() < 1e-9, "{variance}");
    let lows = [100, 108, 120, 128, 140, 148, 160, 168, 180, 188];
    assert_eq!(buckets(parse), lows.map(|low| [low, 4, 1]));

    // Measurements of 1,000 and 2,000 ticks, averaged with a weight of 1/4.
    let compress = cell(picture, 0, 65);
    let average = 1_250 << 16;
    let expected = sums([2, 3_000, 3_000, 1_000, 2_000, 2_000], 5_000_000);
    assert_eq!(compress.live, Sums { average, ..expected });
    assert_eq!((compress.live.average_ticks(), &compress.retired), (1_250.0, &none()));
    assert_eq!((compress.lifetime_count, compress.lifetime_exclusive), (2, 3_000));
    assert_eq!(buckets(compress), [[992, 32, 1], [1_984, 32, 1]]);

    // Measurements of 500 ticks with a million off the CPU, of 2^50, and of 700.
    let wait = cell(picture, 0, 66);
    let total = 1_125_899_906_843_824;
    let squares = 1_267_650_600_228_229_401_496_703_205_376 + 740_000;
    let expected = sums([3, total, total, 500, 1_125_899_906_842_624, 700], squares);
    assert_eq!(wait.live, Sums { off_cpu: 1_000_000, switches: 3, longest: 1_000_600, ..expected });
    assert_eq!(wait.retired, none());
    assert_eq!((wait.lifetime_count, wait.lifetime_exclusive), (3, total));
    let last = [138_538_465_099_744, 2_199_023_255_552, 1];
    assert_eq!(buckets(wait), [[496, 16, 1], [688, 16, 1], last]);

    // Measurements of 700 and 50 ticks; the program died while it applied a reset.
    let lookup = cell(picture, 0, 67);
    assert_eq!((&lookup.live, &lookup.retired), (&none(), &none()));
    assert_eq!((lookup.lifetime_count, lookup.lifetime_exclusive), (2, 750));
    assert_eq!(buckets(lookup), [[0; 3]; 0]);

    // The first owner measured 400 ticks three times, the second 1,000 twice, each with 5 child
    // ticks. The program died while it folded the second owner's records: one of them is in the
    // histogram.
    let parse = cell(picture, 1, 64);
    assert_eq!(parse.live, sums([2, 2_000, 2_010, 1_000, 1_000, 1_000], 2_000_000));
    assert_eq!(parse.retired, sums([3, 1_200, 1_215, 400, 400, 0], 480_000));
    assert_eq!((parse.lifetime_count, parse.lifetime_exclusive), (5, 3_200));
    assert_eq!(buckets(parse), [[400, 8, 3], [992, 32, 2]]);

    // The first owner measured 70 ticks twice, and the second measured nothing.
    let compress = cell(picture, 1, 65);
    let expected = sums([2, 140, 140, 70, 70, 70], 9_800);
    assert_eq!(compress.retired, Sums { average: 70 << 16, ..expected });
    assert_eq!((&compress.live, buckets(compress)), (&none(), vec![[70, 2, 2]]));
    assert_eq!((compress.lifetime_count, compress.lifetime_exclusive), (2, 140));

    // Threads without a lane measured 90 ticks four times, each with 5 child ticks.
    let parse = cell(picture, 3, 64);
    assert_eq!(parse.live, sums([4, 360, 380, 90, 90, 90], 32_400));
    assert_eq!((&parse.retired, buckets(parse)), (&none(), vec![[90, 2, 4]]));
    assert_eq!((parse.lifetime_count, parse.lifetime_exclusive), (4, 360));
}

#[test]
fn the_records_read_as_they_were_written() {
    let mut reader = reader(GOLDEN);
    reader.poll();
    let records = reader.records();
    let of = |lane, point| -> Vec<Record> {
        let found = records.iter().filter(|(at, record)| (*at, record.point) == (lane, point));
        found.map(|(_, record)| *record).collect()
    };
    let all = [(0, 64, 2_040), (0, 65, 2), (0, 66, 3), (0, 67, 2), (1, 64, 5), (1, 65, 2)];
    for (lane, point, count) in all {
        assert_eq!(of(lane, point).len(), count, "lane {lane}, point {point}");
    }
    assert_eq!(records.len(), 2_054);

    // The 70 oldest records are overwritten.
    let first = Record {
        start: 10_007_350,
        span: 105,
        exclusive: 100,
        point: 64,
        caller: ROOT,
        ..Record::default()
    };
    assert_eq!(records[0], (0, first));
    let (start, span) = (10_225_000, 1_000_500);
    let wait = Record { start, span, exclusive: 500, point: 66, caller: ROOT, ..Record::default() };
    assert_eq!(of(0, 66)[0], wait);
    let start = 1_125_899_918_069_524;
    let last =
        Record { start, span: 50, exclusive: 50, point: 67, depth: 1, context: 9, caller: ROOT };
    assert_eq!(of(0, 67)[1], last);
    assert_eq!(reader.poll().losses.records_lost, 70);
}

#[test]
fn the_calls_read_as_they_were_written() {
    let mut reader = reader(GOLDEN);
    reader.poll();
    let calls = reader.calls();
    let call = |caller, callee, [count, exclusive, inclusive]: [u64; 3]| Call {
        caller,
        callee,
        sums: CallSums { count, exclusive, inclusive },
        allocs: CallAllocs::default(),
    };
    let end = 1_125_899_918_069_524 + 50;
    let open = |point, start| OpenPicture { point, start, off: 1_000_000 };
    let expected = LaneCalls {
        lane: 0,
        open: vec![open(65, end), open(66, end + 1)],
        cpu: 5_000,
        edges: vec![call(64, 65, [2, 3_000, 3_000])],
        unplaced: 1,
        is_own: false,
    };
    assert_eq!(calls, [expected]);
}

/// A copy of a copy is byte for byte the file, and so is a copy of a complete segment.
#[test]
fn a_copy_is_byte_for_byte_the_same() {
    let (segment, _) = Segment::from_copy(GOLDEN).expect("the file is a segment");
    assert!(segment.to_copy().expect("there is memory") == GOLDEN);
    let mut whole = GOLDEN.to_vec();
    whole.resize(POOL + 32 * BLOCK, 0);
    let (segment, _) = Segment::from_copy(&whole).expect("the whole of it, too");
    assert_eq!(segment.geometry().blocks_present(), 32);
    assert!(segment.to_copy().expect("there is memory") == GOLDEN);
}

// ---- refused copies ----

fn refusal(copy: &[u8]) -> FormatError {
    Segment::from_copy(copy).expect_err("the copy is not as it should be")
}

fn with_word(at: usize, word: u64) -> Vec<u8> {
    let mut copy = GOLDEN.to_vec();
    copy[at..at + 8].copy_from_slice(&word.to_le_bytes());
    copy
}

/// Offset of the word with byte order and version.
const VERSION: usize = 8;

#[test]
fn another_major_version_is_refused_and_both_are_named() {
    let error = refusal(&with_word(VERSION, 0x0007_0004_0102_0304));
    assert_eq!(error, FormatError::Version { found: (4, 7) });
    let text = error.to_string();
    assert!(text.contains("layout version 4.7") && text.contains("reads 3.x"), "{text}");
    // A higher minor version only adds fields.
    assert!(Segment::from_copy(&with_word(VERSION, 0x0007_0003_0102_0304)).is_ok());
}

#[test]
fn the_other_byte_order_is_refused() {
    assert_eq!(refusal(&with_word(VERSION, 0x0000_0003_0403_0201)), FormatError::ByteOrder);
    // A machine of the other byte order writes these bytes.
    let turned: Vec<u8> = GOLDEN.chunks(8).flat_map(|word| word.iter().rev()).copied().collect();
    assert_eq!(refusal(&turned), FormatError::ByteOrder);
}

#[test]
fn another_magic_is_refused() {
    for found in [0, 1, u64::MAX, 0x0067_6573_2d70_6671] {
        assert_eq!(refusal(&with_word(0, found)), FormatError::NotASegment { found });
    }
    assert!(matches!(refusal(&vec![b'x'; 1 << 16]), FormatError::NotASegment { .. }));
}

/// A file may claim any geometry; the claim alone must cost neither memory nor time.
#[test]
fn a_geometry_larger_than_the_file_is_refused() {
    let huge = 1 << 30;
    for (word, section) in [(0, "points"), (1, "lanes"), (2, "strings"), (3, "blocks")] {
        let at = 16 + 8 * word;
        assert_eq!(refusal(&with_word(at, huge + 1)), FormatError::Geometry { section });
        let blocks = FormatError::Geometry { section: "blocks" };
        assert_eq!(refusal(&with_word(at, huge)), blocks);
        assert_eq!(refusal(&with_word(at, u64::MAX)), FormatError::Geometry { section });
    }
    // A file may claim a pool of 2^30 blocks and hold only those in use. It is accepted, and
    // reading it takes memory and time for the blocks in use alone.
    let mut copy = with_word(16 + 8 * 3, huge);
    let len = POOL as u64 + (huge << 14);
    copy[16 + 8 * 4..][..8].copy_from_slice(&len.to_le_bytes());
    let (segment, facts) = Segment::from_copy(&copy).expect("what is in use is there");
    assert_eq!(segment.geometry().blocks_present(), USED);
    assert_eq!(Reader::new(segment, facts).poll().cells.len(), 7);
    // More blocks are in use than exist.
    let used = PAGE + 8 * 20;
    assert_eq!(GOLDEN[used..used + 8], (USED as u64).to_le_bytes());
    for wrong in [USED as u64 + 1, 33, u64::MAX] {
        let error = refusal(&with_word(used, wrong));
        assert_eq!(error, FormatError::Geometry { section: "blocks" });
    }
}

#[test]
fn every_truncation_is_refused() {
    for len in 0..GOLDEN.len() {
        let expected = if len < 2 * PAGE {
            FormatError::TooShort { found: len }
        } else {
            FormatError::Geometry { section: "blocks" }
        };
        assert_eq!(refusal(&GOLDEN[..len]), expected, "cut to {len} bytes");
    }
}

// ---- damaged copies ----

/// Words and bytes of copies are changed at random, the same ones in every run. Reading each copy
/// ends without a panic and delivers at most as many figures as a segment can hold.
#[test]
fn mutations_are_read_in_bounded_time_without_a_panic() {
    let sections = sections();
    let mut accepted = 0;
    for seed in 1..=2_000_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut copy = GOLDEN.to_vec();
        for _ in 0..=random.below(12) {
            let section = &sections[random.below(sections.len() as u64) as usize];
            let at = section[random.below(section.len() as u64) as usize];
            if random.below(4) == 0 {
                copy[at + random.below(8) as usize] = random.next() as u8;
            } else {
                let word = random.word(&copy);
                copy[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
        let read = std::panic::catch_unwind(|| read_all(&copy));
        accepted += u64::from(read.unwrap_or_else(|_| panic!("seed {seed}")));
    }
    assert!(accepted > 1_000, "only {accepted} copies were read at all");
}

/// If a chain of blocks forms a ring, or two lanes share a chain, each cell is read once, for one
/// of the lanes.
#[test]
fn a_chain_that_is_a_ring_is_read_once() {
    let mut copy = GOLDEN.to_vec();
    let link = |copy: &mut Vec<u8>, at: usize, block: u64| {
        copy[at..at + 8].copy_from_slice(&block.to_le_bytes());
    };
    // First a ring of one block, then a ring of two.
    for (first, second) in [(5_u64, 11_u64), (11, 5)] {
        link(&mut copy, POOL + 5 * BLOCK, first);
        link(&mut copy, POOL + 11 * BLOCK, second);
        let (segment, facts) = Segment::from_copy(&copy).expect("the header is as it was");
        let again = segment.to_copy().expect("there is memory");
        assert_eq!(again.len(), copy.len());
        let mut reader = Reader::new(segment, facts);
        let cells = reader.poll().cells.len();
        assert_eq!(cells, 7, "as in the file");
        assert_eq!(reader.poll().cells.len(), cells);
    }
}

/// Offsets of words to change, by section. The sections on which most other data depends are listed
/// twice. Each section contributes its words that are not zero, and a few zero words.
fn sections() -> Vec<Vec<usize>> {
    let words = |from: usize, to: usize| -> Vec<usize> {
        let is_zero = |at: usize| GOLDEN[at..at + 8] == [0; 8];
        (from..to).step_by(8).filter(|&at| !is_zero(at) || at.is_multiple_of(15 * 8)).collect()
    };
    let block = |number: usize| POOL + number * BLOCK;
    let counters = || words(PAGE, PAGE + 32 * 8);
    let points = words(2 * PAGE, 5 * PAGE);
    let directory = || words(6 * PAGE, 6 * PAGE + 4 * 256);
    let cells = || [words(block(5), block(6)), words(block(11), block(12))].concat();
    let header = words(0, PAGE);
    let shared = words(block(13), block(14));
    let everything = words(0, GOLDEN.len());
    let twice = [counters(), counters(), directory(), directory(), cells(), cells()];
    twice.into_iter().chain([points, header, shared, everything]).collect()
}

/// Polls a copy as a viewer would; returns false if the copy is refused.
fn read_all(copy: &[u8]) -> bool {
    let Ok((segment, facts)) = Segment::from_copy(copy) else { return false };
    let geometry = *segment.geometry();
    let again = segment.to_copy().expect("there is memory");
    assert!(Segment::from_copy(&again).is_ok(), "a copy of it cannot be read");
    let mut reader = Reader::new(segment, facts);
    for _ in 0..4 {
        let picture = reader.poll();
        assert!(picture.points.len() <= geometry.points());
        assert!(picture.lanes.len() <= geometry.lanes() + 1);
        let cells = geometry.blocks_present() * CELLS_PER_BLOCK + geometry.points();
        assert!(picture.cells.len() <= cells);
        for cell in &picture.cells {
            assert!(cell.histogram.iter().count() <= 42 * 32);
            for sums in [&cell.live, &cell.retired] {
                let (mean, variance) = (sums.mean(), sums.variance());
                assert!(mean.is_none_or(f64::is_finite));
                assert!(variance.is_none_or(|variance| variance >= 0.0));
                assert!(sums.average_ticks().is_finite());
            }
        }
        assert!(reader.records().len() <= geometry.blocks_present() / 4 * RING_SLOTS);
    }
    true
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns a word near a boundary, or one copied from elsewhere in the file.
    fn word(&mut self, copy: &[u8]) -> u64 {
        let edges = [0, 1, 2, 3, 13, 14, 15, 31, 32, 128, 1 << 24, 1 << 31, 1 << 32, 1 << 63];
        let edge: u64 = edges[self.below(edges.len() as u64) as usize];
        match self.below(6) {
            0 => edge,
            1 => edge.wrapping_sub(1),
            2 => edge.wrapping_neg(),
            3 => (POOL / 256) as u64 + self.below(1 + (USED * 64) as u64),
            4 => {
                let at = self.below(copy.len() as u64 / 8) as usize * 8;
                copy[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
            }
            _ => self.next(),
        }
    }
}

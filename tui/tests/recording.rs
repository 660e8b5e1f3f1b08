//! Recordings can be read back at every moment, whatever happened to the file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pfp_read::files::json::Existing;
use pfp_read::files::recording::Writer;
use pfp_read::files::recording::{FILE_HEADER, FRAME_HEADER};
use pfp_read::snapshot::{Drained, LaneKind, Loss, ProcessState, Record, Snapshot};
use pfp_read::source::synthetic::Synthetic;
use pfp_read::source::{self, Change, Moment, Recording, Refusal, Source};

/// A fixed sequence of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// `n` snapshots of a process with all kinds of changes, each with the records drained from its
/// rings.
fn life(n: usize) -> Vec<(Snapshot, Vec<Drained>)> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut made = Synthetic::new();
    let mut next = [0; 3];
    let moment = |_| {
        match random.below(12) {
            0 => drop(made.act(Change::Reset(1 + random.below(7) as u32)).unwrap()),
            1 => drop(made.act(Change::Disable(1 + random.below(7) as u32)).unwrap()),
            2 => drop(made.act(Change::Enable(1 + random.below(7) as u32)).unwrap()),
            3 => {
                made.act(Change::SetAlpha(2, Some(0.1 + random.below(9) as f64 / 10.0))).unwrap();
            }
            4 => made.snapshot_mut().losses[Loss::MismatchedEnds] += 1,
            5 => {
                // Add a lane; the next time, remove it again.
                let snapshot = made.snapshot_mut();
                if snapshot.lanes.len() == 3 {
                    let mut lane = snapshot.lanes[0].clone();
                    (lane.id, lane.kind, lane.name) = (7, LaneKind::Ended, "late \"one\"".into());
                    snapshot.lanes.push(lane);
                } else {
                    snapshot.lanes.pop();
                }
            }
            6 => made.snapshot_mut().clock.overhead_pair += 1,
            7 => made.snapshot_mut().process.name.push('x'),
            8 => {
                // Remove the first bucket of a histogram.
                let cells = &mut made.snapshot_mut().cells;
                let place = random.below(cells.len().max(1) as u64) as usize;
                if let Some(cell) = cells.get_mut(place) {
                    Arc::make_mut(cell).histogram.remove(0);
                }
            }
            _ => {}
        }
        let mut events = Vec::new();
        for (lane, next) in next.iter_mut().enumerate() {
            let (lost, kept) = (random.below(2) * random.below(50), random.below(20));
            let from = *next;
            *next += lost + kept;
            made.snapshot_mut().lanes[lane].records_written = *next;
            let record = |n| Record {
                lane: lane as u32,
                point: 1 + n as u32 % 5,
                start: 1000 * n,
                span: 900,
                exclusive: u64::MAX - n,
                depth: 300,
                context: u32::MAX,
            };
            let records = (from + lost..*next).map(record).collect();
            if lost + kept > 0 {
                events.push(Drained { lane: lane as u32, from, lost, records });
            }
        }
        (made.poll().unwrap(), events)
    };
    (0..n).map(moment).collect()
}

fn write(path: &Path, life: &[(Snapshot, Vec<Drained>)]) -> Writer {
    let (first, events) = &life[0];
    let mut writer = Writer::create(path, Existing::Keep, 1_000_000_000, first, events).unwrap();
    for (snapshot, events) in &life[1..] {
        writer.append(snapshot, events).unwrap();
    }
    writer
}

fn read(path: &Path) -> anyhow::Result<Recording> {
    Recording::read(File::open(path).unwrap(), path)
}

fn at(recording: &mut Recording, place: usize) -> anyhow::Result<Snapshot> {
    recording.seek(place);
    recording.poll()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pfprec");
    (folder, path)
}

#[test]
fn every_moment_can_be_read_in_any_order() {
    let (folder, path) = folder();
    let life = life(200);
    drop(write(&path, &life));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else left behind");
    let mut recording = read(&path).unwrap();
    assert_eq!((recording.len(), recording.remark()), (200, None));
    let mut random = Random(77);
    for place in (0..200).chain((0..200).rev()).chain((0..400).map(|_| random.below(200) as usize))
    {
        assert_eq!(at(&mut recording, place).unwrap(), life[place].0, "{place}");
        assert_eq!(recording.events(place).unwrap(), life[place].1, "{place}");
        assert_eq!(recording.taken_unix_ns(place), life[place].0.taken_unix_ns);
    }
}

/// The difference from the key frame is much smaller than a snapshot.
#[test]
fn a_frame_is_smaller_than_a_snapshot() {
    let (_folder, path) = folder();
    let mut made = Synthetic::new();
    let first = made.poll().unwrap();
    let mut writer = Writer::create(&path, Existing::Keep, 1, &first, &[]).unwrap();
    let one = writer.bytes();
    for n in 0..50 {
        let mut same = made.snapshot_mut().clone();
        same.taken_unix_ns += n;
        writer.append(&same, &[]).unwrap();
    }
    assert!(writer.bytes() < one + 50 * 200, "{one} {}", writer.bytes());
}

#[test]
fn it_is_read_while_it_grows() {
    let (_folder, path) = folder();
    let life = life(100);
    let mut writer = write(&path, &life[..1]);
    let mut recording = read(&path).unwrap();
    assert!(recording.grows());
    for (place, (snapshot, events)) in life.iter().enumerate().skip(1) {
        assert!(!recording.refresh().unwrap());
        writer.append(snapshot, events).unwrap();
        assert!(recording.refresh().unwrap());
        assert_eq!(recording.len(), place + 1);
        assert_eq!(at(&mut recording, place).unwrap(), *snapshot);
        assert_eq!(at(&mut recording, 0).unwrap(), life[0].0);
    }
    drop(writer);
    assert!(!recording.grows());
}

/// Offsets at which frames end, from their headers.
fn ends(bytes: &[u8]) -> Vec<usize> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut ends) = (FILE_HEADER, Vec::new());
    while at < bytes.len() {
        at += FRAME_HEADER + word(at + 32) + word(at + 40);
        ends.push(at);
    }
    ends
}

#[test]
fn a_recording_cut_anywhere_keeps_the_complete_frames_before() {
    let (_folder, path) = folder();
    let life = life(5);
    drop(write(&path, &life));
    let bytes = fs::read(&path).unwrap();
    let ends = ends(&bytes);
    assert_eq!((ends.len(), ends[4]), (5, bytes.len()));
    let file = File::options().write(true).open(&path).unwrap();
    for len in (0..=bytes.len()).rev() {
        file.set_len(len as u64).unwrap();
        let whole = ends.iter().filter(|end| **end <= len).count();
        match read(&path) {
            Ok(mut recording) => {
                assert_eq!(recording.len(), whole, "{len}");
                assert_eq!(at(&mut recording, whole - 1).unwrap(), life[whole - 1].0);
                let torn = len > ends[whole - 1];
                assert_eq!(recording.remark().is_some(), torn, "{len}");
                assert!(!recording.is_damaged());
            }
            Err(error) => {
                assert_eq!(whole, 0, "{len}: {error:#}");
                let error = format!("{error:#}");
                assert!(error.contains("expected"), "{len}: {error}");
            }
        }
    }
}

#[test]
fn with_any_byte_damaged_no_wrong_figure_is_shown() {
    let (_folder, path) = folder();
    let life = life(4);
    drop(write(&path, &life));
    let bytes = fs::read(&path).unwrap();
    let ends = ends(&bytes);
    let mut shown = 0;
    let in_header = |place: &usize| {
        let begin = ends.iter().rev().find(|end| **end <= *place).copied();
        *place < begin.unwrap_or(FILE_HEADER) + FRAME_HEADER
    };
    // One checksum covers all compressed bytes, so only some are tested.
    for place in (0..bytes.len()).filter(|place| in_header(place) || place % 5 == 0) {
        let mut copy = bytes.clone();
        copy[place] ^= 0x55;
        fs::write(&path, &copy).unwrap();
        let Ok(mut recording) = read(&path) else { continue };
        let hit = ends.iter().filter(|end| **end <= place).count();
        for (n, (snapshot, _)) in life.iter().enumerate().take(recording.len()) {
            match at(&mut recording, n) {
                Ok(found) => assert_eq!(found, *snapshot, "byte {place}"),
                Err(error) => {
                    assert!(format!("{error:#}").contains("damaged"), "{error:#}");
                    // A damaged frame also invalidates the frames that depend on it.
                    assert!(n >= hit && place >= FILE_HEADER, "byte {place}, frame {n}");
                }
            }
        }
        shown += recording.len();
    }
    assert!(shown > bytes.len() / 5, "most of it can be shown all the same: {shown}");
}

/// The frames' headers are invented, but their checksums are valid.
#[test]
fn hostile_recordings_are_refused_in_bounded_memory() {
    let (_folder, path) = folder();
    let life = life(3);
    drop(write(&path, &life));
    let bytes = fs::read(&path).unwrap();
    let sealed = |at: usize, change: &dyn Fn(&mut [u8])| {
        let mut copy = bytes.clone();
        change(&mut copy[at..at + 60]);
        let sum = crc32fast::hash(&copy[at..at + 60]);
        copy[at + 60..at + 64].copy_from_slice(&sum.to_le_bytes());
        fs::write(&path, copy).unwrap();
        read(&path)
    };
    let second = ends(&bytes)[0];
    // Offset and value of fields in the second frame's header: distances to a key frame before the
    // first frame, a wrong number, and lengths beyond the file and beyond the maximum of a frame.
    for (field, value) in [(4, u32::MAX), (4, 2), (8, 7), (32, u32::MAX), (36, u32::MAX)] {
        let recording = sealed(second, &|header| {
            header[field..field + 4].copy_from_slice(&value.to_le_bytes());
        });
        let mut recording = recording.unwrap();
        assert_eq!(recording.len(), 1, "{field} {value}");
        assert_eq!(at(&mut recording, 0).unwrap(), life[0].0);
    }
    // The header states that the frame decompresses to a byte more, or a byte less, than it does.
    for more in [1_u32, u32::MAX] {
        let mut recording = sealed(second, &|header| {
            let said = u32::from_le_bytes(header[36..40].try_into().unwrap());
            header[36..40].copy_from_slice(&said.wrapping_add(more).to_le_bytes());
        })
        .unwrap();
        assert!(at(&mut recording, 1).is_err());
        assert_eq!(at(&mut recording, 2).unwrap(), life[2].0);
    }
    // Random bytes, with and without the header of a recording.
    let mut random = Random(99);
    for len in [0, 1, 31, 32, 96, 1000] {
        let mut noise: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        fs::write(&path, &noise).unwrap();
        assert!(read(&path).is_err());
        noise.splice(..noise.len().min(FILE_HEADER), bytes[..FILE_HEADER].iter().copied());
        fs::write(&path, &noise).unwrap();
        assert!(read(&path).is_err(), "{len}");
    }
}

#[test]
fn another_major_version_is_refused_with_both_named() {
    let (_folder, path) = folder();
    drop(write(&path, &life(1)));
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    fs::write(&path, &bytes).unwrap();
    let error = source::open(&path).err().unwrap();
    let refusal = error.chain().find_map(|cause| cause.downcast_ref::<Refusal>());
    assert_eq!(refusal.map(Refusal::exit_status), Some(5));
    let text = format!("{error:#}");
    assert!(text.contains("version 1 ") && text.contains("found 9"), "{text}");
    // A later minor version has additional fields, which are skipped.
    bytes[8..12].copy_from_slice(&[1, 0, 5, 0]);
    let sum = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    assert!(source::open(&path).is_ok());
}

#[test]
fn a_recording_is_resumed_after_its_last_complete_frame() {
    let (_folder, path) = folder();
    let life = life(30);
    drop(write(&path, &life[..10]));
    let whole = fs::metadata(&path).unwrap().len();
    let file = File::options().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut &file, b"FRAM and no more").unwrap();
    let (mut writer, last, torn) = Writer::resume(&path).unwrap();
    assert_eq!((last, torn), (life[9].0.clone(), 16));
    assert_eq!(writer.bytes(), whole);
    for (snapshot, events) in &life[10..] {
        writer.append(snapshot, events).unwrap();
    }
    // Only one writer at a time is allowed.
    assert!(Writer::resume(&path).is_err_and(|error| error.to_string().contains("another")));
    drop(writer);
    let mut recording = read(&path).unwrap();
    assert_eq!(recording.len(), 30);
    for (place, (snapshot, events)) in life.iter().enumerate() {
        assert_eq!(at(&mut recording, place).unwrap(), *snapshot);
        assert_eq!(recording.events(place).unwrap(), *events);
    }
}

#[test]
fn a_file_is_replaced_only_on_demand() {
    let (_folder, path) = folder();
    let life = life(1);
    fs::write(&path, "precious").unwrap();
    let create = |overwrite| Writer::create(&path, overwrite, 1, &life[0].0, &[]);
    let error = create(Existing::Keep).err().unwrap().to_string();
    assert!(error.contains("exists already") && error.contains("--force"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    create(Existing::Replace).unwrap();
    assert_eq!(read(&path).unwrap().poll().unwrap(), life[0].0);
}

/// Moments are a second apart in the simulated process.
#[test]
fn a_moment_is_found_by_time_and_number() {
    let (_folder, path) = folder();
    drop(write(&path, &life(100)));
    let recording = read(&path).unwrap();
    let find = |text: &str| recording.find(&Moment::parse(text).unwrap());
    let time = |place: usize| {
        pfp_read::local_time::time_of_day(recording.taken_unix_ns(0) + place as u64 * 1_000_000_000)
    };
    for place in [0, 1, 34, 99] {
        assert_eq!(find(&format!("#{}", place + 1)).unwrap(), place);
        assert_eq!(find(&format!("+{place}s")).unwrap(), place);
        assert_eq!(find(&time(place)).unwrap(), place);
    }
    assert_eq!(find("+1m").unwrap(), 60);
    assert_eq!(find("+34.4s").unwrap(), 34);
    for outside in ["#0", "#101", "+2h"] {
        let found = Moment::parse(outside).map(|moment| recording.find(&moment));
        assert!(!matches!(found, Ok(Ok(_))), "{outside}");
    }
    let before = time(0);
    let error = recording.find(&Moment::Number(101)).unwrap_err().to_string();
    assert!(error.contains(&before) && error.contains("#100"), "{error}");
    assert!(recording.find(&Moment::After(Duration::MAX)).is_err());
    assert!(recording.find(&Moment::Number(0)).is_err());
    for wrong in ["", "12", "25:00:00", "12:60:00", "1:2:3:4", "#x", "+x", "#-1"] {
        assert!(Moment::parse(wrong).is_err(), "{wrong}");
    }
}

/// The kept file of version 1 is read with all its moments and records.
#[test]
fn version_1_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/recording-v1.pfprec");
    let mut recording = read(&path).unwrap();
    assert_eq!((recording.len(), recording.remark()), (12, None));
    let mut next = std::collections::BTreeMap::new();
    let mut count = 0;
    for place in 0..recording.len() {
        let snapshot = at(&mut recording, place).unwrap();
        assert_eq!(snapshot.process.name, "steady");
        assert_eq!(snapshot.process.state, ProcessState::Running);
        let point = snapshot.points.iter().find(|point| point.name == "work").unwrap();
        let cells = snapshot.cells.iter().filter(|cell| cell.point == point.id);
        let now = cells.map(|cell| cell.stats.count + cell.retired.count).sum();
        assert!(now > count, "{now} after {count}");
        count = now;
        for drained in recording.events(place).unwrap() {
            let from = next.insert(drained.lane, drained.next()).unwrap_or(0);
            assert_eq!(drained.from, from);
        }
        for lane in &snapshot.lanes {
            assert_eq!(next.get(&lane.id).copied().unwrap_or(0), lane.records_written);
        }
    }
    assert_eq!(count, COUNT);
}

/// The number of calls that `pfp-top open --once` printed when the kept file was made.
const COUNT: u64 = 831;

/// In the kept file with amounts, the n-th call had n bytes and one item, so the sums at each
/// moment are known. The first eight calls are separate tuples; one tuple sums all others.
#[test]
fn version_1_with_amounts_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/recording-v1-amounts.pfprec");
    let mut recording = read(&path).unwrap();
    assert_eq!((recording.len(), recording.remark()), (8, None));
    let mut count = 0;
    for place in 0..recording.len() {
        let snapshot = at(&mut recording, place).unwrap();
        let point = snapshot.points.iter().find(|point| point.name == "endless").unwrap();
        assert_eq!(point.amounts, ["bytes", "items"]);
        let cells: Vec<_> = snapshot.cells.iter().filter(|cell| cell.point == point.id).collect();
        let [cell] = cells[..] else { panic!("{} cells", cells.len()) };
        let (rest, apart): (Vec<_>, Vec<_>) =
            cell.tuples.iter().partition(|tuple| tuple.each.is_empty());
        assert!(apart.iter().map(|one| one.each.clone()).eq((1..=8).map(|n| vec![n, 1])));
        assert!(apart.iter().all(|one| one.stats.count == 1));
        let [rest] = rest[..] else { panic!("{} are the rest", rest.len()) };
        let now = u128::from(cell.stats.count);
        assert_eq!(u128::from(rest.stats.count), now - 8);
        assert_eq!((rest.sum(0), rest.sum(1)), (now * (now + 1) / 2 - 36, now - 8));
        // In one snapshot the cell could not be read consistently, and has the figures of the
        // previous snapshot.
        let is_busy = snapshot.losses[Loss::CellsBusy] > 0;
        assert_eq!(is_busy, place == 4);
        assert!(now > count || is_busy && now == count, "{now} after {count}");
        count = now;
    }
    // `pfp-top open --once` printed this number of calls when the kept file was made.
    assert_eq!(count, 94_079_480);
}

/// The wall clock is only a label: it is set back an hour and forward again, and the time between
/// moments does not change.
#[test]
fn a_clock_that_is_set_moves_no_moment() {
    const HOUR: u64 = 3_600_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let mut made = Synthetic::new();
    let mut all: Vec<Snapshot> = (0..30).map(|_| made.poll().unwrap()).collect();
    for (place, snapshot) in all.iter_mut().enumerate() {
        snapshot.taken_unix_ns = match place {
            0..10 => snapshot.taken_unix_ns,
            10..20 => snapshot.taken_unix_ns - HOUR,
            _ => snapshot.taken_unix_ns + HOUR,
        };
    }
    let path = folder.path().join("a.pfprec");
    let mut writer = Writer::create(&path, Existing::Keep, 1, &all[0], &[]).unwrap();
    all[1..25].iter().for_each(|snapshot| writer.append(snapshot, &[]).unwrap());
    drop(writer);
    // The distances stay correct when the recording is resumed later.
    let (mut writer, last, _) = Writer::resume(&path).unwrap();
    assert_eq!(last, all[24]);
    all[25..].iter().for_each(|snapshot| writer.append(snapshot, &[]).unwrap());
    let recording = read(&path).unwrap();
    let second = Duration::from_secs(1);
    for (place, snapshot) in all.iter().enumerate() {
        let since = Duration::from_secs(place as u64);
        assert!(recording.since_first(place).abs_diff(since) < Duration::from_millis(1), "{place}");
        assert_eq!(recording.find(&Moment::After(since)).unwrap(), place);
        assert_eq!(recording.since_before(place), second * u32::from(place > 0));
        assert_eq!(recording.taken_unix_ns(place), snapshot.taken_unix_ns);
    }
    assert_eq!(recording.cut(0, 29, 10 * second), [0, 10, 20, 29]);
    assert_eq!(recording.cut(0, 29, 1000 * second), [0]);
}

//! Snapshot files of every form and version so far: a file that a user kept from an incident stays
//! readable. A broken file leads to an error message, and not to a crash.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pfp_model::Model;
use pfp_read::files::json;
use pfp_read::snapshot::{
    ClockKind, Edge, EnclosingRegion, End, Heap, KernelCounts, LaneKind, Limit, Loss, Open, Point,
    PointState, ProcessState, SlowCall, Snapshot,
};
use pfp_read::source::synthetic::Synthetic;
use pfp_read::source::{self, Refusal, Source};
use serde_json::Value;

fn asset(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets").join(name)
}

fn sample() -> PathBuf {
    asset("snapshot-v1.json")
}

fn opened(path: &Path) -> anyhow::Result<Snapshot> {
    source::open(path)?.poll()
}

/// Count, exclusive and maximum ticks of a point, over all lanes.
fn figures(snapshot: &Snapshot, name: &str) -> [u64; 3] {
    let point = snapshot.points.iter().find(|point| point.name.starts_with(name)).unwrap();
    let cells = snapshot.cells.iter().filter(|cell| cell.point == point.id);
    cells.flat_map(|cell| [&cell.stats, &cell.retired]).fold([0; 3], |[count, sum, max], stats| {
        [count + stats.count, sum + stats.exclusive, max.max(stats.max)]
    })
}

#[test]
fn version_1_is_read_with_every_figure() {
    let snapshot = json::read(&sample()).unwrap();
    assert_eq!(snapshot.process.name, "pfp-demo");
    assert_eq!(snapshot.process.state, ProcessState::Running);
    assert_eq!((snapshot.clock.kind, snapshot.clock.invariant), (ClockKind::Rseq, true));
    assert_eq!(snapshot.lanes.iter().filter(|lane| lane.kind == LaneKind::Live).count(), 8);
    assert!(!snapshot.records.is_empty());

    let mut model = Model::default();
    model.fold(snapshot);
    let point = |name: &str| model.points().iter().find(|point| point.name() == name).unwrap();
    assert_eq!(point("word").state(), PointState::Off);
    let deflate = point("deflate");
    assert_eq!((deflate.total().count, deflate.total().min), (73_437, 2_340));
    assert_eq!(deflate.lanes().count(), 4);
    assert_eq!(deflate.buckets().iter().map(|bucket| bucket.count).sum::<u64>(), 73_437);
}

/// A file with amounts, tuples, further tuples summed together and a device, with the content of
/// `segment-v3-amounts.pfp`. `shm-layout/tests/golden_amounts.rs` explains the figures.
#[test]
fn version_1_with_amounts_is_read_with_every_figure() {
    let snapshot = json::read(&asset("snapshot-v1-amounts.json")).unwrap();
    let segment = opened(&asset("segment-v3-amounts.pfp")).unwrap();
    assert_eq!(snapshot.points, segment.points);
    assert_eq!((&snapshot.cells, &snapshot.lanes), (&segment.cells, &segment.lanes));
    assert_eq!((&snapshot.records, &snapshot.losses), (&segment.records, &segment.losses));

    // Three blocks of 4,096 bytes, a line of 64, and 7 copies of other sizes.
    assert_eq!(figures(&snapshot, "copy"), [11, 6_745, 2_500]);
    let copies = snapshot.cells.iter().filter(|cell| cell.point == 64);
    let mut found = std::collections::BTreeMap::<Vec<u64>, (u64, u128)>::new();
    for tuple in copies.flat_map(|cell| &cell.tuples) {
        let (count, bytes) = found.entry(tuple.each.clone()).or_default();
        (*count, *bytes) = (*count + tuple.stats.count, *bytes + tuple.sum(0));
    }
    let any = 12 * 1024 + 7_000 + 30;
    let expected = [(vec![], (7, any)), (vec![64], (1, 64)), (vec![4096], (3, 3 * 4096))];
    assert!(found.into_iter().eq(expected));
    let devices = snapshot.points.iter().filter(|point| point.device);
    assert!(devices.map(|point| point.name.as_str()).eq(["gpu:copy"]));

    let mut model = Model::default();
    model.fold(snapshot);
    let copy = model.points().iter().find(|point| point.name() == "copy").unwrap();
    assert!(copy.amounts().map(|amount| amount.sum).eq([any + 64 + 3 * 4096]));
}

/// Reading a file of version 1 and writing it again loses nothing.
#[test]
fn rewriting_version_1_loses_nothing() {
    for file in [sample(), asset("snapshot-v1-amounts.json")] {
        let text = std::fs::read(&file).unwrap();
        let written = serde_json::to_value(json::read(&file).unwrap()).unwrap();
        let golden: Value = serde_json::from_slice(&text).unwrap();
        if let Some(lost) = lost(&golden, &written, "") {
            panic!("{lost} of {} came back otherwise", file.display());
        }
    }
}

/// The first difference between two values; the written value may have new fields.
fn lost(golden: &Value, written: &Value, path: &str) -> Option<String> {
    match (golden, written) {
        (Value::Object(golden), Value::Object(written)) => {
            golden.iter().find_map(|(name, value)| {
                let path = format!("{path}/{name}");
                match written.get(name) {
                    Some(written) => lost(value, written, &path),
                    None => Some(path),
                }
            })
        }
        (Value::Array(golden), Value::Array(written)) if golden.len() == written.len() => {
            golden.iter().zip(written).enumerate().find_map(|(place, (golden, written))| {
                lost(golden, written, &format!("{path}/{place}"))
            })
        }
        _ => (golden != written).then(|| path.to_owned()),
    }
}

#[test]
fn version_1_is_shown() {
    let output = Command::new(env!("CARGO_BIN_EXE_pfp-top"))
        .args(["open", "--once"])
        .arg(sample())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("pfp-demo[") && text.contains("deflate"), "{text}");
}

/// The compressed file was made by the original `zstd` program.
#[test]
fn a_compressed_file_says_the_same() {
    let packed = asset("snapshot-v1.json.zst");
    let plain = opened(&sample()).unwrap();
    assert_eq!(opened(&packed).unwrap(), plain);
    assert_eq!(json::read(&packed).unwrap(), json::read(&sample()).unwrap());
}

/// A copy of a segment usually has a note, which states when the copy was made and whether the
/// process ran. This copy has no note. The expected figures are in `shm-layout/tests/golden.rs`.
#[test]
fn a_copy_of_a_segment_without_a_note_is_read() {
    let snapshot = opened(&asset("segment-v3.pfp")).unwrap();
    let process = &snapshot.process;
    assert_eq!((process.name.as_str(), process.pid), ("golden", 4711));
    assert_eq!(process.state, ProcessState::Ended);
    assert_eq!(snapshot.points.len(), 7);
    let overflow = snapshot.lanes.last().unwrap();
    assert_eq!((overflow.kind, overflow.name.as_str()), (LaneKind::Overflow, "(overflow)"));
    // The last known event is the begin of a region that never ended.
    let ends = snapshot.records.iter().map(|record| record.start + record.span);
    let begins = snapshot.lanes.iter().flat_map(|lane| &lane.open).map(|open| open.start);
    assert_eq!(Some(snapshot.elapsed_ticks), begins.clone().max());
    assert_eq!(Some(snapshot.elapsed_ticks), ends.chain(begins).max());
    // Sums over the first lane, two owners of the second one, and threads without a lane.
    let parse = [10 + 3 + 2 + 4, 1_450 + 1_200 + 2_000 + 4 * 90, 1_000];
    assert_eq!(figures(&snapshot, "parse"), parse);
    assert_eq!(figures(&snapshot, "wait"), [3, 1_125_899_906_843_824, 1_125_899_906_842_624]);
}

/// A copy of the segment of `pfp-test-target saved`, made while it ran. The expected figures are
/// those that the program printed.
#[test]
fn a_copy_of_a_segment_with_a_note_is_read() {
    let snapshot = opened(&asset("segment-copy-v3.pfp.zst")).unwrap();
    let process = &snapshot.process;
    assert_eq!((process.name.as_str(), process.pid), ("the \"saving\" one", 6_702));
    assert_eq!(process.state, ProcessState::Running);
    assert_eq!(process.started_unix_ns, 1_795_886_779_815_752_970);
    let seconds = snapshot.elapsed_ticks as f64 / snapshot.clock.ticks_per_second;
    let by_calendar = (snapshot.taken_unix_ns - process.started_unix_ns) as f64 / 1e9;
    assert!((seconds - by_calendar).abs() < 0.01, "{seconds} and {by_calendar}");
    assert_eq!(figures(&snapshot, "\"quoted"), [5_150, 13_846, 55]);
    assert_eq!(figures(&snapshot, "reset in between"), [5_050, 15_292, 159]);
    // The program reset this point after its first 100 measurements, less than a second after its
    // start.
    let point = snapshot.points.iter().find(|point| point.name == "reset in between").unwrap();
    let since = point.since_ticks.unwrap();
    assert!(0 < since && (since as f64) < snapshot.clock.ticks_per_second, "{since}");
    assert!(snapshot.points.iter().all(|other| other.since_ticks.is_none() || other == point));
    let lanes: Vec<_> = snapshot.lanes.iter().map(|lane| (lane.kind, &*lane.name)).collect();
    assert_eq!(lanes, [(LaneKind::Live, "pfp-test-target"), (LaneKind::Ended, "second")]);
    assert_eq!(snapshot.records.iter().filter(|record| record.lane == 1).count(), 2_047);
}

// ---- broken files ----

#[test]
fn an_incomplete_copy_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let whole = fs::read(asset("segment-v3.pfp")).unwrap();
    for len in [8, 100, 8_191, 8_192, 40_000, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..len]).unwrap();
        let error = format!("{:#}", opened(&path).unwrap_err());
        assert!(error.contains("expected a whole copy"), "{len}: {error}");
        assert!(error.contains("copy it again"), "{len}: {error}");
    }
    let packed = fs::read(asset("segment-copy-v3.pfp.zst")).unwrap();
    fs::write(&path, &packed[..packed.len() - 7]).unwrap();
    let error = format!("{:#}", opened(&path).unwrap_err());
    assert!(error.contains("ends early") && error.contains("copy it again"), "{error}");

    let mut newer = whole;
    newer[12] = 4;
    fs::write(&path, newer).unwrap();
    let error = opened(&path).unwrap_err();
    let refusal = error.chain().find_map(|cause| cause.downcast_ref::<Refusal>());
    assert_eq!(refusal.map(Refusal::exit_status), Some(5), "{error:#}");
    assert!(format!("{error:#}").contains("layout version 4.0"), "{error:#}");
}

/// The test changes bytes at random, the same bytes in every run. Each damaged copy is refused, or
/// can be shown and saved.
#[test]
fn damaged_copies_are_shown_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, saved) = (folder.path().join("copy"), folder.path().join("saved"));
    let whole = fs::read(asset("segment-v3.pfp")).unwrap();
    let in_use: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] != 0).collect();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize % limit
    };
    let mut shown = 0;
    for _ in 0..300 {
        let mut copy = whole.clone();
        for _ in 0..=below(8) {
            let at = in_use[below(in_use.len())];
            copy[at] = below(256) as u8;
        }
        fs::write(&path, copy).unwrap();
        let Ok(snapshot) = opened(&path) else { continue };
        shown += 1;
        json::write(&snapshot, &saved, json::Existing::Replace).unwrap();
        assert_eq!(opened(&saved).unwrap(), snapshot);
        let mut model = Model::default();
        model.fold(snapshot);
    }
    assert!(shown > 150, "only {shown} of 300 were shown");
}

// ---- documentation ----

/// The documentation lists exactly the fields that are written.
#[test]
fn the_documentation_has_every_field() {
    let mut snapshot = Synthetic::new().poll().unwrap();
    // Set every optional field.
    snapshot.process.members = vec![snapshot.process.clone()];
    snapshot.process.members[0].late_since_unix_ns = Some(0);
    (snapshot.process.stopped, snapshot.process.end) = (true, Some(End::Status(0)));
    snapshot.ages = vec![0];
    snapshot.records.push(pfp_read::snapshot::Record {
        lane: 0,
        point: 0,
        start: 0,
        span: 0,
        exclusive: 0,
        depth: 0,
        context: 0,
    });
    snapshot.lanes[0].amiss[Loss::MismatchedEnds] = 1;
    snapshot.lanes[0].open = vec![Open { point: 0, start: 0, on_cpu: Some(1) }];
    snapshot.lanes[0].unplaced = 1;
    snapshot.edges.push(Edge {
        caller: Some(0),
        allocs: 1,
        alloc_bytes: 1,
        alloc_bytes_inclusive: 1,
        ..Edge::default()
    });
    snapshot.heap = Some(Heap::default());
    let (limit, kernel) = (Some(Limit { ns: 1, cpu: true }), Some(KernelCounts::default()));
    let (why, enclosing) = ("why".into(), vec![EnclosingRegion::default()]);
    let [records, others] = [snapshot.records.clone(), snapshot.records.clone()];
    let waited_for = Some("lock".into());
    let call = SlowCall {
        limit,
        why,
        waited_for,
        kernel,
        enclosing,
        records,
        others,
        ..Default::default()
    };
    (snapshot.slow, snapshot.slow_dropped) = (vec![call.into()], 1);
    (snapshot.points[0].limit, snapshot.points[0].slow_calls) = (limit, 1);
    let Point { process, number, .. } = &mut snapshot.points[0];
    (*process, *number) = (Some(0), Some(0));
    (snapshot.points[0].device, snapshot.points[0].wall) = (true, true);
    snapshot.points[0].amounts = vec!["bytes".into()];
    let point = &mut snapshot.points[0];
    (point.fenced, point.left_over, point.since_ticks) = (true, true, Some(0));
    point.counts_allocs = true;
    let cell = std::sync::Arc::make_mut(&mut snapshot.cells[0]);
    (cell.allocs.calls, cell.heap.live_samples) = (1, 1);
    let (each, sums) = (vec![1], vec![1]);
    cell.tuples = vec![pfp_read::snapshot::AmountTuple { each, sums, ..Default::default() }];

    fn fields(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => object.iter().for_each(|(name, value)| {
                into.insert(name.clone());
                fields(value, into);
            }),
            Value::Array(list) => list.iter().for_each(|value| fields(value, into)),
            _ => {}
        }
    }
    let mut written = BTreeSet::new();
    let mut value = serde_json::to_value(&snapshot).unwrap();
    // The fields of the waits are in a schema of their own.
    value["waits"] = Value::Null;
    fields(&value, &mut written);

    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/snapshot-format.md");
    let text = fs::read_to_string(text).unwrap();
    let json = text.split("\n## ").find(|part| part.starts_with("JSON")).unwrap();
    let row = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let mut documented: BTreeSet<String> = json.lines().filter_map(row).collect();
    // `status` has no row of its own; the row of `end` names it.
    documented.extend(["stats", "retired", "status"].map(str::to_owned));
    assert_eq!(documented, written);
}

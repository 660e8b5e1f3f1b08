//! Snapshot files of every version of the format that was ever written: a file
//! that somebody kept from an incident stays readable.

use std::path::{Path, PathBuf};
use std::process::Command;

use pfp_top::export::json;
use pfp_top::model::Model;
use pfp_top::snapshot::{ClockKind, LaneKind, PointState, ProcessState};
use serde_json::Value;

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/snapshot-v1.json")
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

/// What is written today loses nothing of what such a file says.
#[test]
fn version_1_comes_back_as_it_was() {
    let text = std::fs::read(sample()).unwrap();
    let written = serde_json::to_value(json::read(&sample()).unwrap()).unwrap();
    assert_eq!(written, serde_json::from_slice::<Value>(&text).unwrap());
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

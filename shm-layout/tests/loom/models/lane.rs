//! Models of the lane directory.

use std::sync::Arc;

use loom::thread;

use super::{assert_ready, check, make_ready, memory};
use crate::lane::{Lane, LaneState};
use crate::sync::watch;

/// A lane that its first owner has announced as thread 1.
fn owned_lane() -> Arc<Lane> {
    let lane = Lane::new();
    assert_eq!(lane.claim(), Some(1));
    lane.announce(1, 1, 100, b"one");
    Arc::new(lane)
}

const ENTRY: &[&str] = &["state", "tid", "claimed", "name"];

/// Two threads claim one lane: exactly one succeeds, as its next owner.
pub(super) fn lane_two_claimants() {
    check(|| {
        let lane = owned_lane();
        lane.release(1);
        watch(&*lane, &["state"]);
        let other = {
            let lane = Arc::clone(&lane);
            thread::spawn(move || lane.claim())
        };
        let claims = [lane.claim(), other.join().unwrap()];
        assert!(claims == [Some(2), None] || claims == [None, Some(2)], "{claims:?}");
    });
}

/// The next owner sees the stores of the last one.
pub(super) fn lane_hand_over() {
    check(|| {
        let (lane, cells) = (owned_lane(), memory());
        watch(&*lane, &["state"]);
        let last = {
            let (lane, cells) = (Arc::clone(&lane), Arc::clone(&cells));
            thread::spawn(move || {
                make_ready(&cells);
                lane.release(1);
            })
        };
        if lane.claim().is_some() {
            assert_ready(&cells);
        }
        last.join().unwrap();
    });
}

/// A reader obtains the entry of one owner, or no entry, but never a mixture.
pub(super) fn lane_entry() {
    check(|| {
        let lane = owned_lane();
        watch(&*lane, ENTRY);
        let writer = {
            let lane = Arc::clone(&lane);
            thread::spawn(move || {
                lane.release(1);
                assert_eq!(lane.claim(), Some(2));
                lane.announce(2, 2, 200, b"two");
            })
        };
        if let Some(seen) = lane.read() {
            let owner = (seen.tid, seen.claimed, &*seen.name);
            match (seen.state, seen.generation) {
                (LaneState::Live | LaneState::Ended, 1) => assert_eq!(owner, (1, 100, &b"one"[..])),
                (LaneState::Live, 2) => assert_eq!(owner, (2, 200, &b"two"[..])),
                (LaneState::Ended, 2) => assert_eq!(owner, (0, 0, &b""[..])),
                other => panic!("{other:?}"),
            }
        }
        writer.join().unwrap();
    });
}

/// A ring is backed by memory before its block number becomes visible.
pub(super) fn lane_ring_block() {
    lane_block_is_published("ring_block", Lane::set_ring_block, |lane| {
        lane.read().map_or(0, |entry| entry.ring_block)
    });
}

/// Cells are backed by memory before their block number becomes visible.
pub(super) fn lane_cells_block() {
    lane_block_is_published("cells_block", Lane::set_cells_block, |lane| {
        lane.read().map_or(0, |entry| entry.cells_block)
    });
}

/// Calls are backed by memory before their block number becomes visible.
pub(super) fn lane_calls_block() {
    lane_block_is_published("calls_block", Lane::set_calls_block, |lane| {
        lane.read().map_or(0, |entry| entry.calls_block)
    });
}

fn lane_block_is_published(word: &'static str, set: fn(&Lane, u64), get: fn(&Lane) -> u64) {
    check(move || {
        let (lane, block) = (owned_lane(), memory());
        watch(&*lane, &[word]);
        let writer = {
            let (lane, block) = (Arc::clone(&lane), Arc::clone(&block));
            thread::spawn(move || {
                make_ready(&block);
                set(&lane, 3);
            })
        };
        if get(&lane) == 3 {
            assert_ready(&block);
        }
        writer.join().unwrap();
    });
}

//! Names that threads give to other threads. A name for a thread without a lane waits here.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

use pfp_shm_layout::lane::{Lane, LaneState, NAME_BYTES};

use crate::engine::copies::by_leader;
use crate::engine::process;

/// Maximum number of waiting names; further names are lost.
const WAITING: usize = 128;
const FREE: u32 = 0;
/// Value of `tid` while a thread reads or writes the name. No thread has this id.
const BUSY: u32 = u32::MAX;

struct Given {
    /// The thread's id, or a special value.
    tid: AtomicU32,
    name: [AtomicU64; NAME_BYTES / 8],
}

static GIVEN: [Given; WAITING] = [const {
    Given { tid: AtomicU32::new(FREE), name: [const { AtomicU64::new(0) }; NAME_BYTES / 8] }
}; WAITING];

/// Names a thread of this process, now or when it claims a lane.
pub(crate) fn name_thread(tid: u32, name: &str) {
    by_leader!(name_thread(name, tid));
    if tid == FREE || tid == BUSY {
        return;
    }
    let given = put(tid, name);
    // A process that is still being made has no lanes.
    let Some(process) = process::current() else { return };
    // Pairs with the fence in `take_name`: either `take_name` finds the name, or this function
    // finds the lane.
    fence(SeqCst);
    let lanes = process.segment.lanes_used() as usize;
    let is_its = |lane: &&Lane| {
        lane.read().is_some_and(|picture| picture.state == LaneState::Live && picture.tid == tid)
    };
    let mut lanes = (0..lanes).filter_map(|number| process.segment.lane(number));
    if let Some(lane) = lanes.find(is_its) {
        lane.set_name(name.as_bytes());
        if let Some(given) = given {
            let _ = given.tid.compare_exchange(tid, FREE, Relaxed, Relaxed);
        }
    }
}

fn put(tid: u32, name: &str) -> Option<&'static Given> {
    let is_taken = |given: &&Given, from| {
        given.tid.load(Relaxed) == from
            && given.tid.compare_exchange(from, BUSY, Acquire, Relaxed).is_ok()
    };
    let again = GIVEN.iter().find(|given| is_taken(given, tid));
    let given = again.or_else(|| GIVEN.iter().find(|given| is_taken(given, FREE)))?;
    let mut bytes = [0; NAME_BYTES];
    let mut end = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
    for (word, bytes) in given.name.iter().zip(bytes.as_chunks().0) {
        word.store(u64::from_ne_bytes(*bytes), Relaxed);
    }
    // Pairs with the exchange in `take_name`, which then reads the complete name.
    given.tid.store(tid, Release);
    Some(given)
}

/// Gives a thread's lane, which is published by now, the name that waits for the thread.
pub(super) fn take_name(tid: u32, lane: &Lane) {
    // Pairs with the fence in `name_thread`.
    fence(SeqCst);
    let is_its = |given: &&Given| {
        given.tid.load(Relaxed) == tid
            && given.tid.compare_exchange(tid, BUSY, Acquire, Relaxed).is_ok()
    };
    let Some(given) = GIVEN.iter().find(is_its) else { return };
    let mut bytes = [0; NAME_BYTES];
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(&given.name) {
        *bytes = word.load(Relaxed).to_ne_bytes();
    }
    // Pairs with the exchange in `put`, which must not overwrite the name before it was read here.
    given.tid.store(FREE, Release);
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
    lane.set_name(&bytes[..end]);
}

//! Tests that a lock ends with its process.

use std::fs::{self, File};

use pfp_shm_layout::find::gc;
use pfp_shm_layout::liveness::{Identity, Liveness};
use pfp_shm_layout::object;

use crate::actors::{Actor, Orphan};
use crate::{Base, PAGE, flock, only_entry};

/// The lock ends exactly when the process ends, although a forked and a raw-cloned child live on.
/// Neither child can remove the beacon.
#[test]
fn the_lock_ends_with_its_process_and_not_with_its_children() {
    let base = Base::new();
    let dir = base.directory();
    let mut parent = Actor::start("with-children", &[base.path()]);
    let name = parent.hears_name();
    let children: Vec<Orphan> = (0..2).map(|_| Orphan(parent.hears().parse().unwrap())).collect();

    let info = only_entry(&dir).info;
    assert_eq!(info.object, name);
    assert_eq!(info.liveness(&dir).unwrap(), Liveness::Alive);

    parent.kill();

    for Orphan(child) in &children {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        assert!(!stat.contains(") Z "), "the child lives on: {stat}");
    }
    assert_eq!(info.liveness(&dir).unwrap(), Liveness::Dead);
    // The lock itself is released, not just ignored: a sweeper acquires it.
    let swept = gc(&dir).unwrap();
    assert_eq!(swept.removed.len(), 1, "{swept:?}");
    assert!(swept.failed.is_empty(), "{swept:?}");
    assert_eq!(info.liveness(&dir).unwrap(), Liveness::Gone);
}

/// A dead process counts as dead even if its id and start time belong to a living one.
#[test]
fn a_living_process_of_the_same_id_does_not_revive_a_beacon() {
    let base = Base::new();
    let dir = base.directory();
    // The helper lights a beacon in the name of this, living, process.
    let me = Identity::of_this_process();
    let mut helper = Actor::start("borrowed-identity", &[base.path()]);
    helper.says(&format!("{} {}", me.pid, me.start));
    helper.hears_name();
    let info = only_entry(&dir).info;
    assert_eq!(info.process, me);
    assert_eq!(info.liveness(&dir).unwrap(), Liveness::Alive);
    helper.kill();
    assert_eq!(info.liveness(&dir).unwrap(), Liveness::Dead);
    // A process that only checks the beacon holds a shared lock. That does not make the dead
    // process count as alive, although its id and start time would.
    let asker = File::open(only_entry(&dir).path).unwrap();
    flock(&asker, libc::LOCK_SH);
    assert_eq!(info.liveness(&dir).unwrap(), Liveness::Dead);
}

/// A process that looks, or sweeps, does not appear as the owner to others that look. A process
/// that looks blocks a sweeper only while it holds the lock.
#[test]
fn a_process_that_looks_or_sweeps_is_not_mistaken_for_the_owner() {
    let base = Base::new();
    let dir = base.directory();
    let mut owner = Actor::start("live", &[base.path()]);
    owner.hears_name();
    owner.kill();
    let entry = only_entry(&dir);
    let file = File::open(&entry.path).unwrap();

    flock(&file, libc::LOCK_SH);
    assert_eq!(entry.info.liveness(&dir).unwrap(), Liveness::Dead);
    assert!(gc(&dir).unwrap().removed.is_empty());
    flock(&file, libc::LOCK_EX);
    assert_eq!(entry.info.liveness(&dir).unwrap(), Liveness::Dead);
    assert!(gc(&dir).unwrap().removed.is_empty());
    flock(&file, libc::LOCK_UN);
    assert_eq!(gc(&dir).unwrap().removed.len(), 1);
}

/// An orderly end leaves nothing behind, and until then the host keeps no descriptor open.
#[test]
fn an_orderly_end_leaves_nothing() {
    let base = Base::new();
    let dir = base.directory();
    let mut owner = Actor::start("orderly", &[base.path()]);
    let name = owner.hears_name();
    assert_eq!(owner.hears(), "descriptors kept: 0");
    let entry = only_entry(&dir);
    assert_eq!(entry.state, Liveness::Alive);
    assert_eq!(entry.object_bytes, Some(PAGE as u64));
    owner.says("end");
    assert!(owner.ends().success());
    assert_eq!(entry.info.liveness(&dir).unwrap(), Liveness::Gone);
    assert_eq!(object::backed_bytes(&name).unwrap(), None);
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

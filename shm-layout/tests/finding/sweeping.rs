//! Tests of sweeping.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use pfp_shm_layout::find::{KEEP, find, gc, sweep};
use pfp_shm_layout::liveness::Liveness;
use pfp_shm_layout::name::Name;
use pfp_shm_layout::object;

use crate::actors::Actor;
use crate::roles::MANY;
use crate::{Base, PAGE, flock, only_entry};

/// Sweeping retains a program's last three dead segments and all segments of other programs, and
/// removes beacons whose object is gone.
#[test]
fn a_sweep_keeps_the_last_three_of_the_same_program() {
    let base = Base::new();
    let dir = base.directory();
    let ours = std::env::current_exe().unwrap();
    let start = |exe: &Path| {
        let mut actor = Actor::start("live", &[base.path(), exe]);
        let name = actor.hears_name();
        (actor, name)
    };
    let dead: Vec<Name> = (0..5)
        .map(|_| {
            let (mut actor, name) = start(&ours);
            actor.kill();
            name
        })
        .collect();
    let (mut other, other_name) = start(Path::new("/other/program"));
    other.kill();
    let (mut alive, alive_name) = start(&ours);
    // The newest dead segment has lost its object, as after a reboot.
    object::unlink(&dead[4]).unwrap();

    let swept = sweep(&dir, &ours, KEEP, u64::MAX).unwrap();
    assert!(swept.failed.is_empty(), "{swept:?}");
    let gone: HashSet<Name> = swept.removed.iter().map(|e| e.info.object).collect();
    assert_eq!(gone, HashSet::from([dead[0], dead[4]]));
    assert_eq!(swept.freed_bytes(), PAGE as u64);
    assert_eq!(object::backed_bytes(&dead[0]).unwrap(), None);

    let left = find(&dir).unwrap().entries;
    let left: Vec<Name> = left.iter().map(|e| e.info.object).collect();
    let newest_first = [alive_name, other_name, dead[3], dead[2], dead[1]];
    assert_eq!(left, newest_first);
    assert_eq!(sweep(&dir, &ours, KEEP, u64::MAX).unwrap().removed.len(), 0);
    assert_eq!(gc(&dir).unwrap().removed.len(), 4);
    assert_eq!(only_entry(&dir).info.object, alive_name);
    alive.kill();
    assert_eq!(gc(&dir).unwrap().removed.len(), 1);
}

/// The segments that dead processes left are limited in bytes, over all programs: the newest ones
/// that fit are kept.
#[test]
fn a_sweep_keeps_the_newest_segments_within_its_limit_of_bytes() {
    let base = Base::new();
    let dir = base.directory();
    let ours = std::env::current_exe().unwrap();
    let dead = |exe: &Path, pages: u64| {
        let mut actor = Actor::start("live", &[base.path(), exe]);
        let name = actor.hears_name();
        // One page of the object is allocated already.
        let object = fs::OpenOptions::new().write(true).open(format!("/dev/shm{name}")).unwrap();
        object.write_all_at(&vec![1; (pages * PAGE as u64) as usize], 0).unwrap();
        actor.kill();
        name
    };
    let other = Path::new("/other/program");
    let oldest = dead(&ours, 1);
    let large = dead(other, 5);
    let (small, newest) = (dead(other, 1), dead(&ours, 2));
    let mut actor = Actor::start("live", &[base.path(), other]);
    let alive = actor.hears_name();

    let sweep = |pages: u64| {
        let swept = sweep(&dir, &ours, KEEP, pages * PAGE as u64).unwrap();
        assert!(swept.failed.is_empty(), "{swept:?}");
        let left = find(&dir).unwrap().entries;
        left.iter().map(|entry| entry.info.object).collect::<Vec<Name>>()
    };
    assert_eq!(sweep(9), [alive, newest, small, large, oldest]);
    assert_eq!(sweep(8), [alive, newest, small, large]);
    assert_eq!(object::backed_bytes(&oldest).unwrap(), None);
    // A segment that does not fit is removed, and older ones that fit are kept.
    assert_eq!(sweep(7), [alive, newest, small]);
    assert_eq!(object::backed_bytes(&large).unwrap(), None);
    assert_eq!(sweep(1), [alive, small]);
    assert_eq!(sweep(0), [alive]);
    actor.kill();
    assert_eq!(sweep(0), []);
}

/// Files that a crash or a power failure left half written are removed; files of another version
/// are kept.
#[test]
fn gc_clears_damaged_and_unfinished_beacons() {
    let base = Base::new();
    let dir = base.directory();
    let file = |name: &str, text: &str| {
        let path = base.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let damaged = file(&format!("{:032x}.beacon", 1), "");
    let unfinished = file(&format!("{:032x}.0.new", 2), "pfp-be");
    let newer = file(&format!("{:032x}.beacon", 3), "pfp-beacon 2\nmagic=1\n");
    let stranger = file("notes.new", "mine");

    let found = find(&dir).unwrap();
    assert_eq!(found.unreadable.len(), 2, "{found:?}");
    // A writer that is still working holds the lock.
    let at_work = File::open(&unfinished).unwrap();
    flock(&at_work, libc::LOCK_EX);
    gc(&dir).unwrap();
    assert!(!damaged.exists() && unfinished.exists());
    flock(&at_work, libc::LOCK_UN);
    let swept = gc(&dir).unwrap();
    assert!(swept.failed.is_empty(), "{swept:?}");
    assert!(!unfinished.exists() && newer.exists() && stranger.exists());
}

/// Nothing is left of a process that was killed before it lit the beacon of its segment.
#[test]
fn a_segment_that_was_never_lit_goes_with_its_process() {
    let base = Base::new();
    let dir = base.directory();
    let mut actor = Actor::start("unlit", &[base.path()]);
    let name = actor.hears_name();
    assert!(find(&dir).unwrap().entries.is_empty());
    assert!(gc(&dir).unwrap().failed.is_empty());
    assert!(object::backed_bytes(&name).unwrap().is_some(), "its process lives");
    actor.kill();
    assert!(gc(&dir).unwrap().failed.is_empty());
    assert_eq!(object::backed_bytes(&name).unwrap(), None);
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

/// Sixteen sweepers run at full speed while processes start, end and are killed around them: no
/// sweeper removes the segment of a living process or fails, and at the end nothing is left.
#[test]
fn racing_sweepers_never_remove_a_living_segment() {
    const SWEEPERS: usize = 16;
    const ROUNDS: usize = 6;
    const PROCESSES: usize = 4;
    let base = Base::new();
    let dir = base.directory();
    let mut sweepers: Vec<Actor> =
        (0..SWEEPERS).map(|_| Actor::start("sweeper", &[base.path()])).collect();
    let mut names = HashSet::new();
    for _ in 0..ROUNDS {
        let mut owners: Vec<Actor> =
            (0..PROCESSES).map(|_| Actor::start("many", &[base.path()])).collect();
        for owner in &mut owners {
            for _ in 0..MANY {
                assert!(names.insert(owner.hears_name()));
            }
        }
        // All of them are alive now, and each still has its beacon and its object.
        for owner in &mut owners {
            owner.says("check");
            assert_eq!(owner.hears(), "all there");
        }
        let entries = find(&dir).unwrap().entries.into_iter();
        let alive = entries.filter(|e| e.state == Liveness::Alive && e.object_bytes.is_some());
        assert_eq!(alive.count(), PROCESSES * MANY);
        for owner in &mut owners {
            owner.kill();
        }
    }
    let mut removed = 0;
    for sweeper in &mut sweepers {
        sweeper.says("stop");
        let report = sweeper.hears();
        let (count, failures) = report.split_once(' ').unwrap();
        removed += count.parse::<usize>().unwrap();
        assert_eq!(failures, "[]");
        assert!(sweeper.ends().success());
    }
    removed += gc(&dir).unwrap().removed.len();
    // No two sweepers count the removal of one segment.
    assert_eq!(removed, names.len());
    assert!(find(&dir).unwrap().entries.is_empty());
    for name in names {
        assert_eq!(object::backed_bytes(&name).unwrap(), None);
    }
}

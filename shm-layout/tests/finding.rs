//! Finding, keeping and sweeping segments, over real processes.
//!
//! A test that needs another process starts this binary again with a role
//! (see `role`), and talks to it through its standard input and output. The
//! tests wait for what a process says, or for its end, never for a time.
#![cfg(target_os = "linux")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use pfp_shm_layout::beacon::{Beacon, Info, MAX_BYTES, MAX_EXE, MAX_NAME, Malformed};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find::{Entry, KEEP, find, gc, sweep};
use pfp_shm_layout::liveness::{Identity, Liveness, liveness};
use pfp_shm_layout::object::{self, Name, NoSpace, Object};

const PAGE: usize = 4096;
const NOBODY: u32 = 65534;

// ===== the lock and the process =====

/// The lock ends with the process: not before, and not later although a
/// forked and a raw-cloned child live on. Neither child can put the beacon out.
#[test]
fn the_lock_ends_with_its_process_and_not_with_its_children() {
    let base = Base::new();
    let dir = base.directory();
    let mut parent = Actor::start("with-children", &[base.path()]);
    let name = parent.hears_name();
    let children: Vec<Orphan> = (0..2).map(|_| Orphan(parent.hears().parse().unwrap())).collect();

    let info = only_entry(&dir).info;
    assert_eq!(info.object, name);
    assert_eq!(liveness(&dir, &info).unwrap(), Liveness::Alive);

    parent.kill();

    for Orphan(child) in &children {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        assert!(!stat.contains(") Z "), "the child lives on: {stat}");
    }
    assert_eq!(liveness(&dir, &info).unwrap(), Liveness::Dead);
    // The lock itself is free, not only outvoted: a sweeper gets it.
    let swept = gc(&dir).unwrap();
    assert_eq!(swept.removed.len(), 1, "{swept:?}");
    assert!(swept.failed.is_empty(), "{swept:?}");
    assert_eq!(liveness(&dir, &info).unwrap(), Liveness::Gone);
}

/// A dead process whose id and start time are those of a living one is dead.
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
    assert_eq!(liveness(&dir, &info).unwrap(), Liveness::Alive);
    helper.kill();
    assert_eq!(liveness(&dir, &info).unwrap(), Liveness::Dead);
    // Nor does somebody else who asks: here the lock alone can tell.
    let asker = File::open(only_entry(&dir).path).unwrap();
    flock(&asker, libc::LOCK_SH);
    assert_eq!(liveness(&dir, &info).unwrap(), Liveness::Dead);
}

/// Who asks, and who sweeps, does not look like the owner to others who ask;
/// and an asker is in a sweeper's way only while it asks.
#[test]
fn askers_and_sweepers_do_not_pass_for_the_owner() {
    let base = Base::new();
    let dir = base.directory();
    let mut owner = Actor::start("live", &[base.path()]);
    owner.hears_name();
    owner.kill();
    let entry = only_entry(&dir);
    let file = File::open(&entry.path).unwrap();

    flock(&file, libc::LOCK_SH);
    assert_eq!(liveness(&dir, &entry.info).unwrap(), Liveness::Dead);
    assert!(gc(&dir).unwrap().removed.is_empty());
    flock(&file, libc::LOCK_EX);
    assert_eq!(liveness(&dir, &entry.info).unwrap(), Liveness::Dead);
    assert!(gc(&dir).unwrap().removed.is_empty());
    flock(&file, libc::LOCK_UN);
    assert_eq!(gc(&dir).unwrap().removed.len(), 1);
}

/// An orderly end leaves nothing; the host keeps no descriptor meanwhile.
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
    assert_eq!(liveness(&dir, &entry.info).unwrap(), Liveness::Gone);
    assert_eq!(object::backed_bytes(&name).unwrap(), None);
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

// ===== what others may have planted =====

/// Whatever stands in the directory's place but our own directory is refused,
/// and the message names the path, the expected and the found.
#[test]
fn a_planted_directory_is_refused() {
    let base = Base::new();
    let victim = base.path().join("victim");
    fs::create_dir(&victim).unwrap();
    let planted = base.path().join("planted");
    let refused = |why: &str| {
        let error = Directory::create(&planted).unwrap_err().to_string();
        assert!(error.contains(planted.to_str().unwrap()), "{error}");
        assert!(error.contains(why), "{error}");
    };

    symlink(&victim, &planted).unwrap();
    refused("found a symbolic link");
    fs::remove_file(&planted).unwrap();

    fs::write(&planted, "x").unwrap();
    refused("found a regular file");
    fs::remove_file(&planted).unwrap();

    fifo(&planted);
    refused("found a FIFO");
    fs::remove_file(&planted).unwrap();

    fs::create_dir(&planted).unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o770)).unwrap();
    refused("found mode 0770");

    if is_root() {
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&planted, Some(NOBODY), None).unwrap();
        refused("found user 65534's");
    } else {
        eprintln!("skipped: a directory of another user (needs root)");
    }
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
}

/// Links, FIFOs and foreign files under a beacon's name are reported, never
/// followed, never removed, and never written to.
#[test]
fn planted_beacons_are_refused_and_their_victims_untouched() {
    let base = Base::new();
    let dir = base.directory();
    let victim = base.path().join("victim");
    let info = |n: u128| Info::of_this_process(Name::from_id(n), "planted");
    let place = |n: u128| base.path().join(format!("{n:032x}.beacon"));
    let text = info(1).to_text();
    fs::write(&victim, &text).unwrap();
    let before = fs::metadata(&victim).unwrap();

    symlink(&victim, place(1)).unwrap();
    fs::hard_link(&victim, place(2)).unwrap();
    fifo(&place(3));
    fs::write(place(4), info(4).to_text()).unwrap();
    fs::set_permissions(place(4), fs::Permissions::from_mode(0o666)).unwrap();
    fs::create_dir(place(5)).unwrap();
    let mut planted = 5;
    if is_root() {
        fs::write(place(6), info(6).to_text()).unwrap();
        std::os::unix::fs::chown(place(6), Some(NOBODY), None).unwrap();
        planted += 1;
    } else {
        eprintln!("skipped: a file of another user (needs root)");
    }

    let found = find(&dir).unwrap();
    assert!(found.entries.is_empty(), "{found:?}");
    assert_eq!(found.unreadable.len(), planted, "{found:?}");
    for (path, why) in &found.unreadable {
        assert!(why.contains("expected"), "{path:?}: {why}");
    }
    let swept = gc(&dir).unwrap();
    assert!(swept.removed.is_empty());
    assert_eq!(swept.failed.len(), planted, "{swept:?}");

    for n in 1..=planted as u128 {
        let taken = Beacon::light(&dir, &info(n)).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists, "{n}: {taken}");
        assert!(fs::symlink_metadata(place(n)).is_ok(), "{n} was removed");
    }
    let after = fs::metadata(&victim).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), text);
    assert_eq!(before.mode(), after.mode());
    for file in fs::read_dir(base.path()).unwrap() {
        let name = file.unwrap().file_name();
        assert!(!name.as_bytes().ends_with(b".new"), "{name:?} left behind");
    }
}

/// The same for the object's name.
#[test]
fn planted_objects_are_refused_and_their_victims_untouched() {
    let base = Base::new();
    let victim = base.path().join("victim");
    fs::write(&victim, [7u8; 2 * PAGE]).unwrap();
    let name = Name::random().unwrap();
    let place = PathBuf::from(format!("/dev/shm{name}"));
    let refused = || {
        let taken = Object::create_as(name, PAGE).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists, "{taken}");
        let error = Object::open(&name).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        fs::remove_file(&place).unwrap();
    };

    symlink(&victim, &place).unwrap();
    refused();
    fifo(&place);
    refused();
    fs::write(&place, "").unwrap();
    refused();
    // A second name, in the same file system.
    let other = Object::create(PAGE).unwrap();
    fs::hard_link(format!("/dev/shm{}", other.name()), &place).unwrap();
    refused();
    object::unlink(other.name()).unwrap();

    assert_eq!(fs::read(&victim).unwrap(), [7u8; 2 * PAGE]);
    let gone = Object::open(&name).unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
}

/// Modes are the same under every umask, also for a user whom modes stop.
#[test]
fn the_umask_changes_nothing() {
    for umask in ["0", "77", "777"] {
        let base = Base::new();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let inner = base.path().join("inner");
        let mut actor = Actor::start("umask", &[&inner, Path::new(umask)]);
        let name = actor.hears_name();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let beacon = inner.join(format!("{}.beacon", name.hex()));
        let object = PathBuf::from(format!("/dev/shm{name}"));
        assert_eq!(mode(&inner), 0o700, "umask {umask}");
        assert_eq!(mode(&beacon), 0o1600, "umask {umask}");
        assert_eq!(mode(&object), 0o600, "umask {umask}");
        actor.says("end");
        assert!(actor.ends().success(), "umask {umask}");
    }
}

/// Another user's object is refused, even where its mode would allow it.
#[test]
fn another_users_object_is_refused() {
    if !is_root() {
        eprintln!("skipped: another user's object (needs root)");
        return;
    }
    let object = Object::create(PAGE).unwrap();
    let path = format!("/dev/shm{}", object.name());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let name = Path::new(object.name().as_str());
    let heard = Actor::start("open-as-nobody", &[name]).hears();
    object::unlink(object.name()).unwrap();
    assert_eq!(heard, "Some(PermissionDenied)");
}

// ===== sweeping =====

/// A program's last three dead segments stay, other programs' all do, and
/// what has no memory left goes.
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
    // As after a reboot: the newest dead one has lost its object.
    object::unlink(&dead[4]).unwrap();

    let swept = sweep(&dir, &ours, KEEP).unwrap();
    assert!(swept.failed.is_empty(), "{swept:?}");
    let gone: HashSet<Name> = swept.removed.iter().map(|e| e.info.object).collect();
    assert_eq!(gone, HashSet::from([dead[0], dead[4]]));
    assert_eq!(swept.freed_bytes(), PAGE as u64);
    assert_eq!(object::backed_bytes(&dead[0]).unwrap(), None);

    let left = find(&dir).unwrap().entries;
    let left: Vec<Name> = left.iter().map(|e| e.info.object).collect();
    let newest_first = [alive_name, other_name, dead[3], dead[2], dead[1]];
    assert_eq!(left, newest_first);
    assert_eq!(sweep(&dir, &ours, KEEP).unwrap().removed.len(), 0);
    assert_eq!(gc(&dir).unwrap().removed.len(), 4);
    assert_eq!(only_entry(&dir).info.object, alive_name);
    alive.kill();
    assert_eq!(gc(&dir).unwrap().removed.len(), 1);
}

/// What a crash or a power failure left half done goes; what another version
/// wrote stays.
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
    // A writer that is at work has the lock.
    let at_work = File::open(&unfinished).unwrap();
    flock(&at_work, libc::LOCK_EX);
    gc(&dir).unwrap();
    assert!(!damaged.exists() && unfinished.exists());
    flock(&at_work, libc::LOCK_UN);
    let swept = gc(&dir).unwrap();
    assert!(swept.failed.is_empty(), "{swept:?}");
    assert!(!unfinished.exists() && newer.exists() && stranger.exists());
}

/// Sixteen sweepers at full speed, while processes start, end and are killed
/// around them: a living one's segment is never removed, nobody fails, and in
/// the end nothing is left.
#[test]
fn racing_sweepers_never_remove_a_live_one() {
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
        // All of them live now; each still has its beacon and its object.
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
    // No two sweepers count the same one.
    assert_eq!(removed, names.len());
    assert!(find(&dir).unwrap().entries.is_empty());
    for name in names {
        assert_eq!(object::backed_bytes(&name).unwrap(), None);
    }
}

// ===== the beacon's text =====

/// Whatever the names hold, one line stays one line, and comes back the same.
#[test]
fn a_beacon_says_what_it_was_told() {
    let worst = "\u{7f}".repeat(MAX_NAME);
    for (exe, name) in [
        (&b"/usr/bin/x"[..], "plain"),
        (b"", ""),
        (b"/a b/%25\n\x1b[31m\xff\xfe", "new\nline\tand \u{7f} and %0a"),
        (b"/\xc3\xa9", "\u{e9}\u{202e}\u{1f600} "),
        (&[b'\n'; MAX_EXE], &worst),
    ] {
        let mut info = Info::of_this_process(Name::random().unwrap(), name);
        info.exe = PathBuf::from(OsString::from_vec(exe.to_vec()));
        let text = info.to_text();
        assert!(text.len() <= MAX_BYTES, "{} bytes", text.len());
        assert!(text.bytes().all(|b| b == b'\n' || (b' '..=b'~').contains(&b)));
        assert_eq!(text.lines().count(), 9);
        assert_eq!(Info::parse(text.as_bytes()), Ok(info));
    }
    for long in ["\u{e9}x".repeat(MAX_NAME), "a\0b".repeat(MAX_NAME)] {
        let long = Info::of_this_process(Name::random().unwrap(), &long);
        assert!(long.name.len() <= MAX_NAME);
        assert_eq!(Info::parse(long.to_text().as_bytes()), Ok(long));
    }
}

/// No bytes make the parser panic, and what it accepts is exactly what would
/// be written: there are no two texts of one meaning.
#[test]
fn the_parser_survives_anything() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let text = Info::of_this_process(Name::from_id(7), "a name\n").to_text();
    let check = |bytes: &[u8]| {
        if let Ok(info) = Info::parse(bytes) {
            assert_eq!(info.to_text().as_bytes(), bytes);
        }
    };
    for cut in 0..text.len() {
        assert!(Info::parse(&text.as_bytes()[..cut]).is_err(), "cut at {cut}");
    }
    for _ in 0..100_000 {
        let length = random.below(300);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        check(&bytes);
        let mut mutant = text.clone().into_bytes();
        for _ in 0..1 + random.below(4) {
            let place = random.below(mutant.len());
            match random.below(4) {
                0 => mutant[place] = random.below(256) as u8,
                1 => mutant[place] = b"0%\n=/ 9a"[random.below(8)],
                2 => drop(mutant.remove(place)),
                _ => mutant.insert(place, b"0%\n=/ 9a"[random.below(8)]),
            }
        }
        check(&mutant);
    }
    let newer = Info::parse(b"pfp-beacon 2\nanything");
    assert_eq!(newer, Err(Malformed::Version(2)));
    assert!(Info::parse(&vec![b'x'; 1 << 20]).is_err());
}

// ===== the object's memory =====

/// A viewer can write where it unlocked, and nowhere else.
#[test]
fn an_opened_object_is_protected_but_for_what_is_unlocked() {
    let object = Object::create(4 * PAGE).unwrap();
    object.back(0, 4 * PAGE).unwrap();
    let name = PathBuf::from(object.name().as_str());
    for (page, faults) in [(0, true), (1, false), (2, true), (3, true)] {
        let mut actor = Actor::start("write", &[&name, Path::new(&page.to_string())]);
        assert_eq!(actor.hears(), "writing");
        let status = actor.ends();
        let signal = status.signal();
        assert_eq!(signal, faults.then_some(libc::SIGSEGV), "page {page}");
        // SAFETY: inside the mapping; nobody writes it now.
        let written = unsafe { object.as_ptr().add(page * PAGE).read_volatile() };
        assert_eq!(written == 1, !faults, "page {page}");
    }
    let viewer = Object::open(object.name()).unwrap();
    for (start, end) in [(0, 1), (1, PAGE), (0, 0), (PAGE, 0), (0, 5 * PAGE), (4 * PAGE, 5 * PAGE)]
    {
        assert!(viewer.unlock(start..end).is_err(), "{start}..{end}");
    }
    assert_eq!(viewer.len(), 4 * PAGE);
    // A truncation is seen without touching the memory.
    let path = format!("/dev/shm{}", object.name());
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(PAGE as u64).unwrap();
    assert_eq!(viewer.file_len().unwrap(), PAGE as u64);
    object::unlink(object.name()).unwrap();
}

/// An object is sparse, whole pages long, and backed where asked, alone.
#[test]
fn backing_takes_whole_pages_and_no_more() {
    let object = Object::create(10 * PAGE - 1).unwrap();
    let backed = || object::backed_bytes(object.name()).unwrap().unwrap() as usize;
    assert_eq!((object.len(), backed()), (10 * PAGE, 0));
    object.back(PAGE + 1, PAGE).unwrap();
    assert_eq!(backed(), 2 * PAGE);
    object.back(5, 0).unwrap();
    assert_eq!(backed(), 2 * PAGE);
    object.back(0, 10 * PAGE).unwrap();
    assert_eq!(backed(), 10 * PAGE);
    for (offset, len) in [(0, 10 * PAGE + 1), (10 * PAGE, 1), (usize::MAX, 2)] {
        assert_eq!(object.back(offset, len), Err(NoSpace));
    }
    object::unlink(object.name()).unwrap();
    for size in [0, usize::MAX, isize::MAX as usize + 1] {
        assert!(Object::create(size).is_err(), "{size}");
    }
}

/// On a full tmpfs, also the old kernels' way: refused, no SIGBUS, and
/// nothing allocated on the way.
#[test]
fn a_full_tmpfs_is_an_error_and_not_a_signal() {
    for way in ["madvise", "fallocate"] {
        let mut actor = Actor::start("full-tmpfs", &[Path::new(way)]);
        let heard = actor.hears();
        if heard == "refused" {
            let status = actor.ends();
            assert!(status.success(), "{way}: {status}");
        } else {
            eprintln!("skipped: a full tmpfs, {way}: {heard}");
        }
    }
}

/// A file size limit, which the kernel answers with a signal, is an error too.
#[test]
fn a_file_size_limit_is_an_error_and_not_a_signal() {
    let base = Base::new();
    let mut actor = Actor::start("file-limit", &[base.path()]);
    assert_eq!(actor.hears(), "FileTooLarge FileTooLarge");
    assert!(actor.ends().success());
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

// ===== the roles =====

/// How many segments a `many` process has.
const MANY: usize = 10;

/// Not a test: what a process that `Actor::start` made does.
#[test]
fn role() {
    let Some(role) = std::env::var_os("PFP_TEST_ROLE") else {
        return;
    };
    let arguments: Vec<PathBuf> = std::env::var_os("PFP_TEST_ARGUMENTS")
        .unwrap()
        .as_bytes()
        .split(|&b| b == b'|')
        .map(|argument| PathBuf::from(OsStr::from_bytes(argument)))
        .collect();
    match role.to_str().unwrap() {
        "live" => play_live(&arguments),
        "with-children" => play_with_children(&arguments),
        "borrowed-identity" => play_borrowed_identity(&arguments),
        "orderly" => play_orderly(&arguments),
        "many" => play_many(&arguments),
        "sweeper" => play_sweeper(&arguments),
        "umask" => play_umask(&arguments),
        "open-as-nobody" => play_open_as_nobody(&arguments),
        "write" => play_write(&arguments),
        "full-tmpfs" => play_full_tmpfs(&arguments),
        "file-limit" => play_file_limit(&arguments),
        other => panic!("no role {other}"),
    }
}

fn light(dir: &Directory, change: impl FnOnce(&mut Info)) -> (Object, Beacon) {
    let name = Name::random().unwrap();
    let mut info = Info::of_this_process(name, "a test");
    change(&mut info);
    let beacon = Beacon::light(dir, &info).unwrap();
    let object = Object::create_as(name, PAGE).unwrap();
    object.back(0, PAGE).unwrap();
    (object, beacon)
}

fn play_live(arguments: &[PathBuf]) {
    let dir = Directory::create(&arguments[0]).unwrap();
    let (object, _beacon) = light(&dir, |info| {
        if let Some(exe) = arguments.get(1) {
            info.exe = exe.clone();
        }
    });
    tell(object.name());
    hear();
}

fn play_with_children(arguments: &[PathBuf]) {
    let dir = Directory::create(&arguments[0]).unwrap();
    let (object, beacon) = light(&dir, |_| {});
    tell(object.name());
    let mut held = Some((object, beacon));
    for raw in [false, true] {
        // SAFETY: the only other thread of this process, the harness's, waits,
        // so the child may allocate.
        let child = unsafe {
            if raw {
                libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32
            } else {
                libc::fork()
            }
        };
        if child == 0 {
            if let Some((object, beacon)) = held.take() {
                drop(object);
                beacon.extinguish().ok();
            }
            // The last thing the child does before it waits: now it counts.
            tell(std::process::id());
            loop {
                // SAFETY: waits for a signal; the test sends it.
                unsafe { libc::pause() };
            }
        }
    }
    hear();
}

fn play_borrowed_identity(arguments: &[PathBuf]) {
    let dir = Directory::create(&arguments[0]).unwrap();
    let heard = hear();
    let (pid, start) = heard.split_once(' ').unwrap();
    let (object, _beacon) = light(&dir, |info| {
        info.process.pid = pid.parse().unwrap();
        info.process.start = start.parse().unwrap();
    });
    tell(object.name());
    hear();
}

fn play_orderly(arguments: &[PathBuf]) {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let dir = Directory::create(&arguments[0]).unwrap();
    let (object, beacon) = light(&dir, |_| {});
    drop(dir);
    tell(object.name());
    tell(format!("descriptors kept: {}", descriptors() - before));
    assert_eq!(hear(), "end");
    object::unlink(object.name()).unwrap();
    beacon.extinguish().unwrap();
}

fn play_many(arguments: &[PathBuf]) {
    let dir = Directory::create(&arguments[0]).unwrap();
    let mut all = Vec::new();
    for _ in 0..MANY {
        // One that ends in order in between, under the sweepers' eyes.
        let (object, beacon) = light(&dir, |_| {});
        object::unlink(object.name()).unwrap();
        beacon.extinguish().unwrap();
        let (object, beacon) = light(&dir, |_| {});
        tell(object.name());
        all.push((object, beacon));
    }
    assert_eq!(hear(), "check");
    for (object, beacon) in &all {
        assert_eq!(object.file_len().unwrap(), PAGE as u64);
        assert_eq!(liveness(&dir, beacon.info()).unwrap(), Liveness::Alive);
    }
    tell("all there");
    hear();
}

fn play_sweeper(arguments: &[PathBuf]) {
    let dir = Directory::create(&arguments[0]).unwrap();
    let exe = std::env::current_exe().unwrap();
    let stop = std::thread::spawn(hear);
    let mut removed = 0;
    let mut failed = Vec::new();
    while !stop.is_finished() {
        for swept in [sweep(&dir, &exe, 0).unwrap(), gc(&dir).unwrap()] {
            removed += swept.removed.len();
            failed.extend(swept.failed);
        }
    }
    tell(format!("{removed} {failed:?}"));
}

fn play_umask(arguments: &[PathBuf]) {
    let umask = u32::from_str_radix(arguments[1].to_str().unwrap(), 8).unwrap();
    become_nobody();
    // SAFETY: takes a plain number and cannot fail.
    unsafe { libc::umask(umask) };
    let dir = Directory::create(&arguments[0]).unwrap();
    let (object, beacon) = light(&dir, |_| {});
    assert_eq!(Object::open(object.name()).unwrap().len(), PAGE);
    only_entry(&Directory::open(&arguments[0]).unwrap());
    tell(object.name());
    assert_eq!(hear(), "end");
    object::unlink(object.name()).unwrap();
    beacon.extinguish().unwrap();
}

fn play_open_as_nobody(arguments: &[PathBuf]) {
    become_nobody();
    let name = Name::parse(arguments[0].to_str().unwrap()).unwrap();
    tell(format!("{:?}", Object::open(&name).err().map(|e| e.kind())));
}

fn play_write(arguments: &[PathBuf]) {
    let name = Name::parse(arguments[0].to_str().unwrap()).unwrap();
    let page: usize = arguments[1].to_str().unwrap().parse().unwrap();
    let object = Object::open(&name).unwrap();
    object.unlock(PAGE..2 * PAGE).unwrap();
    tell("writing");
    // SAFETY: inside the mapping; a fault is what the test looks for.
    unsafe { object.as_ptr().add(page * PAGE).write_volatile(1) };
}

fn play_full_tmpfs(arguments: &[PathBuf]) {
    if !mount_small_shm() {
        tell("no mount namespace of its own (needs root)");
        return;
    }
    let old_kernel = arguments[0] == Path::new("fallocate");
    let object = Object::create(8 << 20).unwrap();
    if old_kernel && !refuse_populate() {
        tell("no seccomp filter");
        return;
    }
    let before = ALLOCATIONS.get();
    let half = object.back(0, 512 << 10);
    let whole = object.back(0, 8 << 20);
    let allocations = ALLOCATIONS.get() - before;
    assert_eq!((half, whole), (Ok(()), Err(NoSpace)));
    assert_eq!(allocations, 0);
    for page in 0..128 {
        // SAFETY: inside the part that was backed.
        unsafe { object.as_ptr().add(page * PAGE).write_volatile(1) };
    }
    tell("refused");
}

fn play_file_limit(arguments: &[PathBuf]) {
    let limit = libc::rlimit { rlim_cur: 10, rlim_max: 10 };
    // SAFETY: a valid rlimit that outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    let dir = Directory::create(&arguments[0]).unwrap();
    let object = Object::create(PAGE).unwrap_err().kind();
    let info = Info::of_this_process(Name::random().unwrap(), "");
    let beacon = Beacon::light(&dir, &info).unwrap_err().kind();
    tell(format!("{object:?} {beacon:?}"));
}

// ===== helpers =====

/// A directory of the test's own, removed at its end.
struct Base(PathBuf);

impl Base {
    fn new() -> Base {
        let id = Name::random().unwrap();
        let path = std::env::temp_dir().join(format!("pfp-test-{}", id.hex()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Base(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn directory(&self) -> Directory {
        Directory::create(self.path()).unwrap()
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // What a test left in shared memory goes with it.
        if let Ok(found) = Directory::open(&self.0).and_then(|dir| find(&dir)) {
            for entry in found.entries {
                object::unlink(&entry.info.object).ok();
            }
        }
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Another process of this binary, in a role.
struct Actor {
    child: Child,
    tells: BufReader<ChildStdout>,
    listens: ChildStdin,
}

/// A child of another process, which outlives it, and goes with its test.
struct Orphan(i32);

impl Drop for Orphan {
    fn drop(&mut self) {
        // SAFETY: a plain system call, on a process that waits for it.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

const MARK: &str = "pfp-test:";

impl Actor {
    fn start(role: &str, arguments: &[&Path]) -> Actor {
        let arguments: Vec<&[u8]> = arguments.iter().map(|a| a.as_os_str().as_bytes()).collect();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role", "--nocapture"])
            .env("PFP_TEST_ROLE", role)
            .env("PFP_TEST_ARGUMENTS", OsString::from_vec(arguments.join(&b'|')))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Actor {
            tells: BufReader::new(child.stdout.take().unwrap()),
            listens: child.stdin.take().unwrap(),
            child,
        }
    }

    /// The next thing it tells.
    fn hears(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.tells.read_line(&mut line).unwrap(), 0, "it ended");
            if let Some((_, told)) = line.split_once(MARK) {
                return told.trim_end().to_owned();
            }
        }
    }

    fn hears_name(&mut self) -> Name {
        Name::parse(&self.hears()).unwrap()
    }

    fn says(&mut self, text: &str) {
        writeln!(self.listens, "{text}").unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn ends(&mut self) -> ExitStatus {
        let mut rest = String::new();
        self.tells.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn tell(text: impl std::fmt::Display) {
    let mut out = io::stdout().lock();
    writeln!(out, "{MARK}{text}").unwrap();
    out.flush().unwrap();
}

fn hear() -> String {
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn only_entry(dir: &Directory) -> Entry {
    let found = find(dir).unwrap();
    assert_eq!(found.entries.len(), 1, "{found:?}");
    found.entries.into_iter().next().unwrap()
}

fn flock(file: &File, kind: i32) {
    // SAFETY: an open descriptor and plain numbers.
    let refused = unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) };
    assert_eq!(refused, 0);
}

fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a NUL-terminated path that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Gives root's rights up, if there are any.
fn become_nobody() {
    if is_root() {
        // SAFETY: plain numbers; the whole process changes its user.
        assert_eq!(unsafe { libc::setgid(NOBODY) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
    }
}

/// A /dev/shm of 1 MiB that this thread alone sees.
fn mount_small_shm() -> bool {
    let (none, nothing) = (c"none".as_ptr(), std::ptr::null());
    // SAFETY: system calls on NUL-terminated strings; only this thread, which
    // has a mount namespace of its own by then, sees what they change.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                none,
                c"/".as_ptr(),
                nothing,
                libc::MS_REC | libc::MS_PRIVATE,
                nothing.cast(),
            ) == 0
            && libc::mount(
                none,
                c"/dev/shm".as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                c"size=1m".as_ptr().cast(),
            ) == 0
    }
}

/// Makes madvise(_, _, 23) answer EINVAL in this thread, as an old kernel does.
fn refuse_populate() -> bool {
    const fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt, jf, k }
    }
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // The number of the call is at 0, its third argument at 16 + 2 * 8.
    let mut steps = [
        step(LOAD, 0, 0, 0),
        step(EQUAL, 0, 3, libc::SYS_madvise as u32),
        step(LOAD, 0, 0, 32),
        step(EQUAL, 0, 1, 23),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program outlives the call, which copies it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

/// xorshift: the same bytes in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

thread_local! {
    /// How often this thread has allocated.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: hands everything to the system's allocator, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { System.dealloc(pointer, layout) }
    }
}

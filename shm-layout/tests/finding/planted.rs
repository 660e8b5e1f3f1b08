//! Tests with files that another user may have planted.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use pfp_shm_layout::beacon::{Beacon, Info};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find::{find, gc};
use pfp_shm_layout::name::Name;
use pfp_shm_layout::object::{self, Object};

use crate::actors::Actor;
use crate::{Base, NOBODY, PAGE, fifo, is_root, skipped};

/// Everything in the directory's place except our own directory is refused, and the message names
/// the path, the expected state and the found state.
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
        refused("found one of user 65534");
    } else {
        skipped("a directory of another user", "not root");
    }
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
}

/// Links, FIFOs and foreign files under a beacon's name are reported, never followed, removed or
/// written to.
#[test]
fn planted_beacons_are_refused_and_their_victims_untouched() {
    let base = Base::new();
    let dir = base.directory();
    let victim = base.path().join("victim");
    let info = |n: u128| Info::of_this_process(Name::from_id(n), "planted").unwrap();
    let place = |n: u128| base.path().join(format!("{n:032x}.beacon"));
    let text = info(1).to_text().unwrap();
    fs::write(&victim, &text).unwrap();
    let before = fs::metadata(&victim).unwrap();

    symlink(&victim, place(1)).unwrap();
    fs::hard_link(&victim, place(2)).unwrap();
    fifo(&place(3));
    fs::write(place(4), info(4).to_text().unwrap()).unwrap();
    fs::set_permissions(place(4), fs::Permissions::from_mode(0o666)).unwrap();
    fs::create_dir(place(5)).unwrap();
    let mut planted = 5;
    if is_root() {
        fs::write(place(6), info(6).to_text().unwrap()).unwrap();
        std::os::unix::fs::chown(place(6), Some(NOBODY), None).unwrap();
        planted += 1;
    } else {
        skipped("a file of another user", "not root");
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
        let taken = Beacon::lit(&dir, &info(n)).unwrap_err();
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

/// Links, FIFOs and foreign files under an object's name are treated like those under a beacon's.
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
    // A hard link, in the same file system.
    let other = Object::create(PAGE).unwrap();
    fs::hard_link(format!("/dev/shm{}", other.name()), &place).unwrap();
    refused();
    object::unlink(other.name()).unwrap();

    assert_eq!(fs::read(&victim).unwrap(), [7u8; 2 * PAGE]);
    let gone = Object::open(&name).unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
}

/// Modes do not depend on the umask, also for a user that is not root and so is bound by modes.
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

/// A beacon whose file is gone does not mistake another file for its own, and removes none.
#[test]
fn a_beacon_whose_file_is_gone_leaves_others_alone() {
    let base = Base::new();
    let dir = base.directory();
    for is_lit in [false, true] {
        let info = Info::of_this_process(Name::random().unwrap(), "gone").unwrap();
        let beacon = Beacon::prepare(&dir, &info).unwrap();
        let draft = only_file(base.path());
        let place = base.path().join(format!("{}.beacon", info.object.hex()));
        if is_lit {
            // Another thread may have renamed the draft and be suspended right after.
            fs::rename(draft, &place).unwrap();
        } else {
            fs::remove_file(draft).unwrap();
            fs::write(&place, "another's").unwrap();
        }
        let lit = beacon.light();
        assert_eq!(
            lit.err().map(|error| error.kind()),
            (!is_lit).then_some(io::ErrorKind::NotFound)
        );
        assert_eq!(beacon.extinguish().is_ok(), is_lit);
        assert_eq!(place.exists(), !is_lit);
        fs::remove_file(place).ok();
    }
}

fn only_file(folder: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    file.clone()
}

/// Another user's object is refused, even if its mode would permit access.
#[test]
fn another_users_object_is_refused() {
    if !is_root() {
        return skipped("another user's object", "not root");
    }
    let object = Object::create(PAGE).unwrap();
    let path = format!("/dev/shm{}", object.name());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let name = Path::new(object.name().as_str());
    let heard = Actor::start("open-as-nobody", &[name]).hears();
    object::unlink(object.name()).unwrap();
    assert_eq!(heard, "Some(PermissionDenied)");
}

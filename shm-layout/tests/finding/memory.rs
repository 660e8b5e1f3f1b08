//! Tests the memory of an object.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use pfp_shm_layout::object::{self, NoSpace, Object};

use crate::actors::Actor;
use crate::{Base, PAGE, skipped};

/// A viewer can write to the pages that it unlocked, and to no others.
#[test]
fn an_opened_object_is_writable_only_where_it_was_unlocked() {
    let object = Object::create(4 * PAGE).unwrap();
    object.back(0, 4 * PAGE).unwrap();
    let name = PathBuf::from(object.name().as_str());
    for (page, faults) in [(0, true), (1, false), (2, true), (3, true)] {
        let mut actor = Actor::start("write", &[&name, Path::new(&page.to_string())]);
        assert_eq!(actor.hears(), "writing");
        let status = actor.ends();
        let signal = status.signal();
        assert_eq!(signal, faults.then_some(libc::SIGSEGV), "page {page}");
        // SAFETY: the page is inside the mapping, and the child that wrote it has ended.
        let written = unsafe { object.as_ptr().add(page * PAGE).read_volatile() };
        assert_eq!(written == 1, !faults, "page {page}");
    }
    let viewer = Object::open(object.name()).unwrap();
    for (start, end) in [(0, 1), (1, PAGE), (0, 0), (PAGE, 0), (0, 5 * PAGE), (4 * PAGE, 5 * PAGE)]
    {
        assert!(viewer.unlock(start..end).is_err(), "{start}..{end}");
    }
    assert_eq!(viewer.len(), 4 * PAGE);
    // A truncation is detected without touching the memory.
    let path = format!("/dev/shm{}", object.name());
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(PAGE as u64).unwrap();
    assert_eq!(viewer.file_len().unwrap(), PAGE as u64);
    object::unlink(object.name()).unwrap();
}

/// An object is sparse, its length is in whole pages, and only the requested part is backed.
#[test]
fn backing_allocates_only_the_requested_whole_pages() {
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

/// On a full tmpfs, backing is refused without SIGBUS, and allocates nothing on the heap. This also
/// covers the calls that older kernels need.
#[test]
fn a_full_tmpfs_is_an_error_and_not_a_signal() {
    for way in ["madvise", "fallocate"] {
        let mut actor = Actor::start("full-tmpfs", &[Path::new(way)]);
        let heard = actor.hears();
        if heard == "refused" {
            let status = actor.ends();
            assert!(status.success(), "{way}: {status}");
        } else {
            skipped(&format!("a full tmpfs, {way}"), &heard);
        }
    }
}

/// The kernel answers a file size limit with a signal; backing an object turns that into an error.
#[test]
fn a_file_size_limit_is_an_error_and_not_a_signal() {
    let base = Base::new();
    let mut actor = Actor::start("file-limit", &[base.path()]);
    assert_eq!(actor.hears(), "FileTooLarge FileTooLarge");
    assert!(actor.ends().success());
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

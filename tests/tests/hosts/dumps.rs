//! The core dump of a host that crashes is as small as without pfp, whatever kinds of mapping a
//! dump includes.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::target::Target;
use pfp_tests::{figure, skipped};

/// Bytes that pfp may add to a dump: its code, and its data in the host's own memory.
const MORE: u64 = 2 << 20;

/// Runs a program until it has dumped core; returns the size of the dump, if it is written to a
/// file here.
fn dump(program: &Path, filter: &str, how: &str, segments: usize) -> Option<u64> {
    let place = Place::new();
    let mut command = place.command(program.to_str().expect("plain text"));
    command.args([filter, how]);
    let mut target = Target::start(&mut command);
    let unlinked: usize = target.reach("measured").one("unlinked");
    assert_eq!(unlinked, if how == "unlinked" { segments } else { 0 });
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", target.pid())).expect("it lives");
    assert_eq!(kept_out(&smaps), vec![true; 2 * segments], "object and beacon: {smaps}");
    target.go();
    let ended = target.end();
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:?}");
    let mut files = fs::read_dir(place.folder()).expect("it is ours").flatten();
    let core = files.find(|file| file.file_name().to_string_lossy().starts_with("core"));
    let size = core.filter(|_| ended.status.core_dumped())?.metadata().expect("it is ours").len();
    Some(size)
}

/// Whether each shared mapping is excluded from dumps.
fn kept_out(smaps: &str) -> Vec<bool> {
    let mut is_ours = false;
    let mut all = Vec::new();
    for line in smaps.lines() {
        // Lines of the mappings themselves, not of their properties.
        if line.split(' ').next().is_some_and(|first| first.contains('-')) {
            is_ours = line.contains("/dev/shm/pfp-") || line.contains(".beacon");
        } else if is_ours && line.starts_with("VmFlags:") {
            all.push(line.ends_with(" dd") || line.contains(" dd "));
        }
    }
    all
}

#[test]
fn a_core_dump_has_no_segment() {
    let build = |link| {
        let disabled = if link == Link::Without { "-DPFP_DISABLE" } else { "-UPFP_DISABLE" };
        let name = format!("dumped-{link:?}");
        c::compile(Compiler::C, &name, &["dumped.c"], link, [disabled, "-pthread"])
    };
    let without = build(Link::Without);
    // The default filter, and a filter that includes every mapping, also shared ones and mapped
    // files.
    for filter in ["0x33", "0xff"] {
        let plain = dump(&without, filter, "named", 0);
        for link in [Link::Static, Link::Shared] {
            let program = build(link);
            for how in ["named", "unlinked"] {
                let size = dump(&program, filter, how, 1);
                let (Some(plain), Some(size)) = (plain, size) else {
                    skipped("the size of core dumps", "the system puts them elsewhere");
                    continue;
                };
                let what = format!("dumps: {filter} {link:?} {how}: {plain} bytes became {size}");
                assert!(size < plain + MORE, "{what}");
                figure(&what);
            }
        }
    }
}

//! What is done once for a process, a thread or a point harms nobody: not whoever started
//! the program, not a child that is forked meanwhile, not a plugin that is closed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::target::Place;
use pfp_tests::{figure, size, skipped};

const NOBODY: u32 = 65534;

/// The number that a program has said first behind a word.
fn said(output: &str, word: &str) -> Vec<u64> {
    let lines = output.lines().filter_map(|line| line.strip_prefix(word));
    lines.map(|rest| rest.trim().parse().expect("a number")).collect()
}

fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Runs a program with every variable of ours, as another user if asked; what it said.
fn with_variables(program: &Path, place: &Place, user: Option<u32>) -> String {
    let mut command = Command::new(program);
    command.env_clear().env("PFP_DIR", place.path().join("beacons")).env("PFP_MEMORY_MB", "1");
    command.env("PFP_SNAPSHOT", place.path().join("snapshot.json"));
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    c::run(&mut command)
}

/// Whoever starts a set-user-id program chooses nothing of what it does as its owner.
#[test]
fn the_environment_of_a_set_user_id_program_has_no_effect() {
    if !is_root() {
        return skipped("a set-user-id program", "not root");
    }
    for link in [Link::Static, Link::Shared] {
        let name = format!("trusted-{link:?}");
        let program = c::compile(Compiler::C, &name, &["trusted.c"], link, [""; 0]);
        let place = Place::new();
        let snapshot = place.path().join("snapshot.json");
        let plain = with_variables(&program, &place, None);
        assert_eq!(said(&plain, "secure"), [0]);
        assert!(said(&plain, "mapped")[0] < 16 << 20, "{plain}");
        assert!(snapshot.exists() && place.path().join("beacons").exists());
        assert_eq!(said(&plain, "dumped"), [0, 0], "in core dumps: {plain}");
        fs::remove_file(&snapshot).expect("it is ours");
        fs::remove_dir_all(place.path().join("beacons")).expect("it is ours");

        // Where another user may start it.
        let open = std::env::temp_dir().join(format!("pfp-{name}-{}", std::process::id()));
        fs::copy(&program, &open).expect("there is room");
        fs::set_permissions(&open, Permissions::from_mode(0o4755)).expect("it is ours");
        let secure = with_variables(&open, &place, Some(NOBODY));
        fs::remove_file(&open).expect("it is ours");
        if said(&secure, "secure") != [1] {
            return skipped("a set-user-id program", "the file system takes no notice of it");
        }
        assert!(said(&secure, "mapped").iter().all(|&bytes| bytes > 128 << 20), "{secure}");
        assert!(!snapshot.exists(), "{link:?}: a file of the caller's choice");
        assert!(
            !place.path().join("beacons").exists(),
            "{link:?}: a folder of the caller's choice"
        );
    }
}

/// A child comes back into what its parent was in the middle of, measures by itself and
/// ends; the parent's figures are its own.
#[test]
fn a_child_of_a_handler_leaves_its_parent_alone() {
    let program = c::compile(Compiler::C, "stepped", &["stepped.c"], Link::Static, ["-pthread"]);
    let mut all = 0;
    let stages =
        [("point", 101), ("thread", 101), ("process", 1009), ("point", 97), ("thread", 97)];
    for (stage, each) in stages {
        let place = Place::new();
        let each = if size(0, 1) == 1 { 1 } else { each };
        // A start spins until clocks agree, so it has no fixed number of instructions.
        let most = if stage == "process" { size(300, 10_000) } else { 10_000 };
        let arguments = [stage, "fork", &each.to_string(), "1", &most.to_string()];
        let mut target = place.start(program.to_str().expect("plain text"), &arguments);
        let said = target.reach("done").clone();
        let number = |key: &str| said.one::<u64>(key);
        assert!(number("children") > 0);
        assert_eq!((number("crashed"), number("hung"), number("failed")), (0, 0, 0), "{stage}");
        assert_eq!(number("counted"), number("expected"), "{stage}");
        all += number("children");
        target.end_well();
    }
    figure(&format!("cold: {all} children at instructions of cold paths"));
}

/// A thread that has measured in a plugin lives on when that is closed.
#[test]
fn a_plugin_that_measures_is_not_unloaded() {
    let flags = ["-shared", "-fPIC"];
    let sources = ["unloaded_plugin.c"];
    let plugin = c::compile(Compiler::C, "unloaded_plugin.so", &sources, Link::Static, flags);
    let flags = ["-pthread", "-ldl"];
    let host = c::compile(Compiler::C, "unloaded", &["unloaded.c"], Link::Without, flags);
    let place = Place::new();
    let mut command = place.command(host.to_str().expect("plain text"));
    assert_eq!(c::run(command.arg(&plugin)), "lives 1\n");
}

/// An exception, the end of its thread or a cancellation, out of a handler that interrupts a
/// begin or end: what was left is not counted, and everything else is.
#[test]
fn a_handler_that_leaves_for_good_loses_its_region_alone() {
    let flags = ["-pthread", "-fnon-call-exceptions"];
    let mut all = 0;
    for link in [Link::Static, Link::Shared] {
        let name = format!("left-{link:?}");
        let program = c::compile(Compiler::CXX, &name, &["left.cpp"], link, flags);
        for (how, clock) in ["exception", "exit", "cancellation"]
            .into_iter()
            .flat_map(|how| [(how, "wall"), (how, "rseq")])
        {
            // Linkers describe no stub of a shared library to who unwinds the stack.
            if (link, how) == (Link::Shared, "exception") {
                continue;
            }
            let place = Place::new();
            let each = if clock == "wall" { size(5, 1) } else { size(61, 1) };
            let mut command = place.command(program.to_str().expect("plain text"));
            command.args([how, &each.to_string()]).env("PFP_CLOCK", clock);
            let output = c::run(&mut command);
            let tried = said(&output, "tried")[0];
            assert!(tried > 40, "{how} {clock}: {output}");
            assert!(output.contains("\nwrong 0 0\n"), "{link:?} {how} {clock}: {output}");
            all += tried;
        }
    }
    figure(&format!("cold: {all} handlers that left for good"));
}

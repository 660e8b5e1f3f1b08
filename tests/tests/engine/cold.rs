//! Work done once for a process, a thread or a point harms nobody: not a child that is
//! forked meanwhile, not a plugin that is closed, not a thread that is to be cancelled.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, size};

/// The number that a program has said first behind a word.
fn said(output: &str, word: &str) -> Vec<u64> {
    let lines = output.lines().filter_map(|line| line.strip_prefix(word));
    lines.map(|rest| rest.trim().parse().expect("a number")).collect()
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

/// Threads that have measured in a plugin live on when that is closed, measure once more in
/// a destructor of theirs and end. All of it is counted, and the plugin stays.
#[test]
fn a_plugin_that_measures_is_not_unloaded() {
    let flags = ["-pthread", "-ldl"];
    let host = c::compile(Compiler::C, "unloaded", &["unloaded.c"], Link::Without, flags);
    for (plugin, name) in [(c::c_plugin(), "plugin in C"), (c::rust_plugin(), "plugin in Rust")] {
        let place = Place::new();
        let program = host.to_str().expect("plain text");
        let mut target = place.start(program, &[plugin.to_str().expect("plain text")]);
        let said = target.reach("done").clone();
        assert_eq!(said.one::<u64>("stayed"), 1, "{name}");
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        let (counted, missed) = (watch::named(picture, name).count, picture.losses.begins_missed);
        assert_eq!(counted + missed, said.one::<u64>("called"), "{name}");
        // A thread that meets the point while another one does misses a begin or two.
        assert!(missed < 30, "{name}: {missed} missed");
        target.end_well();
    }
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

/// A thread that is to be cancelled comes through pfp's slow paths and ends behind them; one
/// that may not be cancelled still may not.
#[test]
fn a_cancelled_thread_does_not_end_in_pfp() {
    const SLOW: [&str; 14] = [
        "process",
        "thread",
        "point",
        "named point",
        "amounts",
        "number",
        "tasks",
        "init",
        "calibrate",
        "names",
        "snapshot",
        "show",
        "stats",
        "timer",
    ];
    for link in [Link::Static, Link::Shared] {
        let build = |name: &str, flags: &[&str]| {
            let name = format!("{name}-{link:?}");
            c::compile(Compiler::C, &name, &["cancelled.c"], link, flags)
        };
        let plain = build("cancelled", &["-pthread"]);
        let instrumented = build("cancelled-hooks", &["-pthread", "-finstrument-functions"]);
        let ways = SLOW.map(|how| (&plain, how)).into_iter().chain([(&instrumented, "function")]);
        for (program, how) in ways {
            let place = Place::new();
            let path = program.to_str().expect("plain text");
            let mut target = place.start_with(path, &[how], "PFP_ENABLE", "*");
            let said = target.reach("done").clone();
            assert_eq!(said.one::<u64>("through"), 2, "{link:?} {how}");
            // What was interrupted is measured.
            let picture_of = |name| watch::named(Watch::attach(&place, &target).poll(), name).count;
            let of = [("process", "first"), ("point", "another"), ("function", "inner")];
            if let Some((_, name)) = of.iter().find(|(of, _)| *of == how) {
                assert_eq!(picture_of(name), 2, "{link:?} {how}");
            }
            target.end_well();
        }
    }
}

//! Work done once for a process, a thread or a point is safe when a child is forked during it, a
//! plugin is closed, or a thread is cancelled.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::target::{Said, Target};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, lacks, size};

/// The numbers after `word` in the output of a program.
fn said(output: &str, word: &str) -> Vec<u64> {
    let line = output.lines().find_map(|line| line.strip_prefix(word));
    let numbers = line.unwrap_or_default().split_whitespace();
    numbers.map(|number| number.parse().expect("a number")).collect()
}

/// Runs a program with a handler that interrupts it at some instructions of a cold path. Returns
/// its output, after checking that nothing failed.
fn stepped(stage: &str, how: &str, each: u64, most: u64) -> Said {
    let program = c::compile(Compiler::C, "stepped", &["stepped.c"], Link::Static, ["-pthread"]);
    let place = Place::new();
    let arguments = [stage, how, &each.to_string(), "1", &most.to_string()];
    let mut target = place.start(&program, &arguments);
    let said = target.reach("done").clone();
    let number = |key: &str| said.one::<u64>(key);
    assert!(number("children") > 0, "{stage} {how}");
    let wrong = (number("crashed"), number("hung"), number("failed"));
    assert_eq!(wrong, (0, 0, 0), "{stage} {how} {each}: crashed, hung, failed");
    target.end_well();
    said
}

/// A child that a handler forks returns into the interrupted code, measures on its own and ends.
/// The parent's figures are not affected.
#[test]
fn a_child_of_a_handler_leaves_its_parent_alone() {
    let mut all = 0;
    let stages =
        [("point", 101), ("thread", 101), ("process", 1009), ("point", 97), ("thread", 97)];
    for (stage, each) in stages {
        let each = if size(0, 1) == 1 { 1 } else { each };
        // pfp's start spins until clocks agree, so its number of instructions varies.
        let most = if stage == "process" { size(300, 10_000) } else { 10_000 };
        let said = stepped(stage, "fork", each, most);
        assert_eq!(said.one::<u64>("counted"), said.one::<u64>("expected"), "{stage}");
        all += said.one::<u64>("children");
    }
    figure(&format!("cold: {all} children at instructions of cold paths"));
}

/// A child of a bare `clone` leaves its parent alone, except for one record that the parent was
/// writing or folding. Children run while the parent's region is open, so that region is off the
/// CPU, and its end folds all records before it.
#[test]
fn a_cloned_child_of_a_handler_finishes_at_most_one_record() {
    let mut all = 0;
    for (stage, each) in [("point", 101), ("thread", 101), ("process", 2003)] {
        let said = stepped(stage, "bare", each, size(300, 10_000));
        let twice = said.one::<u64>("counted") - said.one::<u64>("expected");
        assert!(twice <= 1, "{stage}: {twice} counted twice");
        all += said.one::<u64>("children");
    }
    figure(&format!("cold: {all} children of bare clones"));
}

/// Handlers that measure, change points and create children interrupt every function of the
/// interface. The handlers' measurements are counted, and so are the functions'.
#[test]
fn every_function_can_be_interrupted() {
    let program =
        c::compile(Compiler::C, "everything", &["everything.c"], Link::Static, ["-pthread"]);
    let mut all = 0;
    let ways =
        [("measures", 211), ("interrupt", 97), ("steers", 97), ("forks", 397), ("vforks", 397)];
    for (how, each) in ways {
        let place = Place::new();
        let arguments =
            [how, &(each / size(1, 30)).to_string(), &size(5_000, 1_000_000).to_string()];
        let mut command = place.command(program.to_str().expect("plain text"));
        // The folder for the snapshots.
        command.args(arguments).current_dir(place.folder());
        let mut target = Target::start(&mut command);
        let said = target.reach("done").clone();
        let number = |key: &str| said.one::<u64>(key);
        assert_eq!((number("crashed"), number("failed")), (0, 0), "{how}: crashed, failed");
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        let count = |name| watch::named(picture, name).count;
        assert_eq!((count("named"), count("numbered")), (4, 1), "{how}");
        // The handler's code ran once before it interrupted anything. Handlers that interrupted the
        // program while all points were off may have measured or not.
        let measuring = |handlers| if matches!(how, "steers" | "forks") { 0 } else { handlers };
        let most = 1 + measuring(number("handlers"));
        let least = most - measuring(number("handlers_off"));
        let of_handlers =
            ["handler", "named of handler", "numbered of handler", "asked"].map(count);
        let found = of_handlers.iter().sum::<u64>() + picture.losses.begins_missed;
        let expected = 4 * least..=4 * most;
        assert!(expected.contains(&found), "{how}: {of_handlers:?}, {expected:?} expected");
        all += number("handlers");
        target.end_well();
    }
    figure(&format!("cold: {all} handlers at instructions of every function"));
}

/// A jump out of a cold path leaves no trace: later calls are counted, on this thread and on
/// others, no thread waits, and signals and cancellation are enabled again.
#[test]
fn a_jump_out_of_a_cold_path_leaves_nothing_behind() {
    /// Lower bound of the instructions of the longest path, which starts pfp in a process. That
    /// path takes 200,000, and millions more if the thread spins while it waits.
    const LEAST: u64 = 100_000;
    let mut all = 0;
    // The first two paths, which are shorter, are interrupted until they end.
    let ways = [
        ("point", size(21, 1), 100_000),
        ("thread", size(21, 1), 100_000),
        ("process", size(307, 18), size(250, 10_000)),
        ("process", size(25_013, 1_471), size(12, 1_000)),
    ];
    for (stage, each, most) in ways {
        let jumps = stepped(stage, "jump", each, most).one::<u64>("children");
        assert!(jumps >= most.min(100).min(LEAST / each), "{stage}: {jumps} jumps");
        all += jumps;
    }
    figure(&format!("cold: {all} jumps out of cold paths"));
}

/// A child acquires no lock of the C library or of Rust that a thread of its parent may hold at the
/// fork, so it always measures.
#[test]
fn a_child_waits_for_no_lock_of_its_parents_threads() {
    let flags = ["-pthread", "-ldl"];
    for link in [Link::Static, Link::Shared] {
        let name = format!("beside-locks-{link:?}");
        let program = c::compile(Compiler::C, &name, &["beside_locks.c"], link, flags);
        for when in ["first", "later"] {
            let place = Place::new();
            let arguments = [when, &size(60, 10_000).to_string()];
            let mut target = place.start(&program, &arguments);
            let said = target.reach("done").clone();
            let wrong = ["hung", "died", "miscounted"].map(|key| said.one::<u64>(key));
            assert_eq!(wrong, [0; 3], "{link:?} {when}: hung, died, miscounted");
            target.end_well();
        }
    }
}

/// If the thread that creates the segment is suspended, another thread creates one instead of
/// waiting. When the first thread continues, there is still one segment, and it has all calls.
#[test]
fn a_thread_that_stops_while_creating_the_segment_is_replaced() {
    for link in [Link::Static, Link::Shared] {
        let name = format!("stalled-{link:?}");
        let program = c::compile(Compiler::C, &name, &["stalled.c"], link, ["-pthread"]);
        for stop in ["before", "within", "after"] {
            let place = Place::new();
            let mut target = place.start(&program, &[stop]);
            let said = target.reach("done").clone();
            // Over its lifetime, a thread waits at most 900 us for others. The remaining time of
            // the limit is for creating a segment and for a thousand calls.
            let waited = said.one::<u64>("waited_us");
            assert!(waited < 10_000, "{link:?} {stop}: {waited} us");
            assert_eq!(place.lit().len(), 1, "{link:?} {stop}");
            let mut watch = Watch::attach(&place, &target);
            let picture = watch.poll();
            let (counted, missed) =
                (watch::named(picture, "stalled").count, picture.losses.begins_missed);
            assert_eq!(counted + missed, said.one::<u64>("called"), "{link:?} {stop}");
            assert_eq!(missed, 0, "{link:?} {stop}");
            target.end_well();
            assert!(place.lit().is_empty(), "{link:?} {stop}");
        }
    }
}

/// Threads begin at once, before there is a segment, and no call and no name is lost. With `stops`,
/// the thread that creates the segment is suspended until all others have finished.
#[test]
fn threads_that_begin_at_once_lose_no_call() {
    const THREADS: u64 = 48;
    const CALLS: u64 = 100;
    for link in [Link::Static, Link::Shared] {
        let name = format!("start-{link:?}");
        let program = c::compile(Compiler::C, &name, &["start.c"], link, ["-pthread"]);
        for stops in ["goes-on", "stops"].repeat(size(5, 100) as usize) {
            let what = format!("{link:?} {stops}");
            let place = Place::new();
            let arguments = [stops, &THREADS.to_string(), &CALLS.to_string()];
            let mut target = place.start(&program, &arguments);
            target.reach("done");
            assert_eq!(place.lit().len(), 1, "{what}");
            let mut watch = Watch::attach(&place, &target);
            let picture = watch.poll();
            assert_eq!(watch::named(picture, "start").count, THREADS * CALLS, "{what}");
            assert_eq!(picture.losses.begins_missed, 0, "{what}");
            let names = (0..THREADS).map(|number| format!("starter {number}"));
            for name in names {
                let has_name = picture.lanes.iter().any(|it| *it.lane.name == *name.as_bytes());
                assert!(has_name, "{what}: {name}");
            }
            target.end_well();
        }
    }
}

/// Threads that have measured in a plugin outlive its closing, measure once more in a destructor
/// and end. All calls are counted, and the plugin stays loaded.
#[test]
fn a_plugin_that_measures_is_not_unloaded() {
    let flags = ["-pthread", "-ldl"];
    let host = c::compile(Compiler::C, "unloaded", &["unloaded.c"], Link::Without, flags);
    for (plugin, name) in [(c::c_plugin(), "plugin in C"), (c::rust_plugin(), "plugin in Rust")] {
        let place = Place::new();
        let mut target = place.start(&host, &[plugin.to_str().expect("plain text")]);
        let said = target.reach("done").clone();
        assert_eq!(said.one::<u64>("stayed"), 1, "{name}");
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        let (counted, missed) = (watch::named(picture, name).count, picture.losses.begins_missed);
        assert_eq!(counted + missed, said.one::<u64>("called"), "{name}");
        assert_eq!(missed, 0, "{name}");
        target.end_well();
    }
}

/// A handler interrupts a begin or end and leaves it by an exception, by the end of the thread or
/// by a cancellation. The interrupted region is not counted, and all others are.
#[test]
fn a_handler_that_never_returns_loses_only_the_interrupted_region() {
    if lacks("a handler that leaves by an exception", "c++") {
        return;
    }
    let flags = ["-pthread", "-fnon-call-exceptions"];
    let mut all = 0;
    for link in [Link::Static, Link::Shared] {
        let name = format!("left-{link:?}");
        let program = c::compile(Compiler::CXX, &name, &["left.cpp"], link, flags);
        // Clock source, distance between interrupted instructions, and whether the thread was
        // switched out before, so that the path after a switch is interrupted.
        let ways = [("wall", 1, "0"), ("rseq", 1, "0"), ("rseq", size(3, 1), "1")];
        for (how, (clock, each, switched)) in ["exception", "exit", "cancellation", "at once"]
            .into_iter()
            .flat_map(|how| ways.map(|way| (how, way)))
        {
            let place = Place::new();
            let mut command = place.command(program.to_str().expect("plain text"));
            command.args([how, &each.to_string(), switched]).env("PFP_CLOCK", clock);
            let output = c::run(&mut command);
            let tried = said(&output, "tried")[0];
            assert!(tried > 140, "{how} {clock} {switched}: {output}");
            assert!(output.contains("\nwrong 0 0\n"), "{link:?} {how} {clock}: {output}");
            all += tried;
        }
    }
    figure(&format!("cold: {all} handlers that left for good"));
}

/// A thread that is cancelled finishes pfp's slow path and ends after it. A thread that has
/// disabled cancellation is not cancelled there.
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
            let mut target = place.start_with(program, &[how], "PFP_ENABLE", "*");
            let said = target.reach("done").clone();
            assert_eq!(said.one::<u64>("through"), 2, "{link:?} {how}");
            // The interrupted region is measured.
            let picture_of = |name| watch::named(Watch::attach(&place, &target).poll(), name).count;
            let of = [("process", "first"), ("point", "another"), ("function", "inner")];
            if let Some((_, name)) = of.iter().find(|(of, _)| *of == how) {
                assert_eq!(picture_of(name), 2, "{link:?} {how}");
            }
            target.end_well();
        }
    }
}

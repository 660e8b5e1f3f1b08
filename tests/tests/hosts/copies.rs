//! Several copies of pfp in one process: a program and plugins that each link pfp share one
//! segment, and their regions nest in each other. The first copy leads: it has the segment. The
//! other copies follow: they call the leader's functions.

use std::path::{Path, PathBuf};

use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::control::Change;
use pfp_shm_layout::find::Entry;
use pfp_shm_layout::liveness::Liveness;
use pfp_tests::c::{self, Compiler, Link, compile};
use pfp_tests::other;
use pfp_tests::place::{Place, text};
use pfp_tests::target::Target;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, size};
use serde_json::Value;

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// Number of calls in each part of the programs.
const TIMES: u64 = 200;

const IN_C: &str = "plugin in C";
const IN_RUST: &str = "plugin in Rust";

/// Copies a library into the test's folder, so that the loader treats it as another one.
fn another(place: &Place, library: &Path, name: &str) -> PathBuf {
    let to = folder(place).join(name);
    std::fs::copy(library, &to).expect("there is room");
    to
}

fn folder(place: &Place) -> PathBuf {
    let folder = place.path("files");
    std::fs::create_dir_all(&folder).expect("there is room");
    folder
}

fn start(place: &Place, how: &str, libraries: &[&Path]) -> Target {
    let libraries = libraries.iter().map(|path| text(path));
    let arguments: Vec<_> = ["copies", how].into_iter().chain(libraries).collect();
    place.start(TARGET, &arguments)
}

/// The only segment of a process.
fn only(place: &Place, pid: u32) -> Entry {
    let mut found: Vec<_> = of(place, pid);
    assert_eq!(found.len(), 1, "segments of one process: {found:?}");
    found.pop().expect("just counted")
}

fn of(place: &Place, pid: u32) -> Vec<Entry> {
    place.entries().into_iter().filter(|it| it.info.process.pid == pid).collect()
}

/// The summed figures of points with these names.
fn sums(watch: &mut Watch, names: &[&str]) -> Sums {
    let picture = watch.poll();
    let mut sums = Sums::default();
    for name in names {
        for point in picture.points.iter().filter(|point| point.name == *name) {
            sums.merge(&watch::total(picture, point.id));
        }
    }
    sums
}

/// Asserts that counts are exact, and that nested regions of another copy are subtracted.
fn assert_nested(watch: &mut Watch, plugins: &[&str], times: u64) {
    let outside = sums(watch, &["outside"]);
    let plugin = sums(watch, plugins);
    let inside = sums(watch, &["inside"]);
    let counts = [outside.count, plugin.count, inside.count];
    assert_eq!(counts, [times; 3], "outside, plugin, inside");
    let shares = [(&outside, &plugin), (&plugin, &inside)].map(|(around, within)| {
        (around.inclusive - around.exclusive) as f64 / within.inclusive as f64
    });
    // The share may exceed 1, since the outer region also excludes the inner region's measuring
    // cost, which each copy calibrates separately. The share is below 1 only if a hypervisor has
    // stolen time inside the inner region.
    assert!(shares.iter().all(|share| (0.9..1.5).contains(share)), "{shares:?}");
    assert_eq!(inside.exclusive, inside.inclusive);
    figure(&format!("copies: taken out of what is inside: {shares:?}"));
}

/// The viewer lists one row, and a snapshot has the points of all copies.
fn assert_one_for_the_viewer(place: &Place, pid: u32, names: &[&str]) {
    let listed: Vec<Value> =
        serde_json::from_slice(&place.pfp_top(&["list", "--json"]).stdout).expect("it is JSON");
    assert_eq!(listed.len(), 1, "{listed:?}");
    let file = folder(place).join("snapshot.json");
    let pid = pid.to_string();
    let output = place.pfp_top(&["snapshot", "-p", &pid, "--force", "-o", text(&file)]);
    assert!(output.status.success(), "{output:?}");
    assert_named(&file, names);
    let output = place.pfp_top(&["reset", "-p", &pid, "*"]);
    assert!(output.status.success(), "{output:?}");
}

fn assert_named(file: &Path, names: &[&str]) {
    let taken: Value =
        serde_json::from_slice(&std::fs::read(file).expect("it was written")).expect("it is JSON");
    let points = taken["points"].as_array().expect("it is a list");
    let found: Vec<_> = points.iter().filter_map(|point| point["name"].as_str()).collect();
    for name in names {
        assert_eq!(found.iter().filter(|it| *it == name).count(), 1, "{name} in {found:?}");
    }
}

#[test]
fn a_program_and_its_plugins_share_a_segment() {
    let (c, rust) = (c::c_plugin(), c::rust_plugin());
    for (libraries, names) in [
        (vec![&c], vec![IN_C]),
        (vec![&rust], vec![IN_RUST]),
        (vec![&c, &rust], vec![IN_C, IN_RUST]),
    ] {
        for how in ["nested", "plugins-first"] {
            let place = Place::new();
            let libraries: Vec<_> = libraries.iter().map(|path| path.as_path()).collect();
            let mut target = start(&place, how, &libraries);
            target.reach("done");
            let mut watch = Watch::open(&only(&place, target.pid()));
            let times = TIMES * names.len() as u64;
            if how == "nested" {
                assert_nested(&mut watch, &names, times);
            } else {
                let extra = names.len() as u64;
                assert_eq!(sums(&mut watch, &names).count, times + extra);
                assert_eq!(sums(&mut watch, &["inside"]).count, times);
            }
            // One thread has one lane, whichever copy measures.
            assert_eq!(watch.poll().lanes.len(), 1, "{how}");
            assert_eq!(watch.poll().losses.begins_missed, 0);
            let all = [names.clone(), vec!["outside", "inside"]].concat();
            assert_one_for_the_viewer(&place, target.pid(), &all);
            target.end_well();
        }
    }
}

#[test]
fn a_program_in_c_and_its_plugins_share_a_segment() {
    let plugins = [c::c_plugin(), c::rust_plugin()];
    for link in [Link::Shared, Link::Static] {
        let name = format!("copies-{link:?}").to_lowercase();
        let program = compile(Compiler::C, &name, &["copies.c"], link, ["-ldl"]);
        let place = Place::new();
        let mut target = place.start(&program, &plugins.each_ref().map(|path| text(path)));
        target.reach("done");
        let mut watch = Watch::open(&only(&place, target.pid()));
        assert_nested(&mut watch, &[IN_C, IN_RUST], TIMES * 2);
        assert_one_for_the_viewer(&place, target.pid(), &[IN_C, IN_RUST, "outside", "inside"]);
        target.end_well();
    }
}

#[test]
fn copies_that_start_at_once_agree_on_a_leader() {
    let rounds = size(20, 1_000);
    let (c, rust) = (c::c_plugin(), c::rust_plugin());
    for round in 0..rounds {
        let place = Place::new();
        let more = [another(&place, &c, "second.so"), another(&place, &rust, "third.so")];
        let [second, third] = more.each_ref().map(PathBuf::as_path);
        let mut all = [c.as_path(), third, second, rust.as_path()];
        all.rotate_left(round as usize % 4);
        let mut target = start(&place, "at-once", &all);
        target.reach("done");
        let mut watch = Watch::open(&only(&place, target.pid()));
        for name in [IN_C, IN_RUST] {
            assert_eq!(sums(&mut watch, &[name]).count, 2 * TIMES + 2, "{name}");
        }
        assert_eq!(watch.poll().losses.begins_missed, 0);
        target.end_well();
    }
    figure(&format!("copies: {rounds} starts of four copies at once, one segment each"));
}

#[test]
fn threads_have_one_lane_for_all_copies() {
    let place = Place::new();
    let (c, rust) = (c::c_plugin(), c::rust_plugin());
    let mut target = start(&place, "threads", &[&c, &rust]);
    let threads: u64 = target.reach("done").one("threads");
    let mut watch = Watch::open(&only(&place, target.pid()));
    assert_nested(&mut watch, &[IN_C, IN_RUST], threads * 2 * 5);
    let picture = watch.poll();
    // The threads used one lane one after the other; the calibration has another one.
    assert!(picture.lanes.len() <= 2, "{:?}", picture.lanes);
    target.end_well();
}

#[test]
fn switching_points_reaches_all_copies() {
    for plugin in [c::c_plugin(), c::rust_plugin()] {
        let place = Place::new();
        let mut target = start(&place, "paused", &[&plugin]);
        target.reach("done");
        let mut watch = Watch::open(&only(&place, target.pid()));
        let all = [&[IN_C, IN_RUST][..], &["outside"], &["inside"]];
        assert_eq!(all.map(|names| sums(&mut watch, names).count), [3; 3]);
        // A viewer disables the point of one plugin.
        let name = if plugin == c::rust_plugin() { IN_RUST } else { IN_C };
        let id = watch::id(watch.poll(), name);
        watch.change(id, Change::Disable);
        target.go();
        target.reach("done");
        assert_eq!(all.map(|names| sums(&mut watch, names).count), [3, 3 + TIMES, 3 + TIMES]);
        target.end_well();
    }
}

#[test]
fn a_forked_child_of_several_copies_has_one_segment() {
    let place = Place::new();
    let (c, rust) = (c::c_plugin(), c::rust_plugin());
    let mut target = start(&place, "forks", &[&c, &rust]);
    let child: u32 = target.reach("forked").one("child");
    let mut watch = Watch::open(&only(&place, child));
    let in_child = |watch: &mut Watch, name| sums(watch, &[name]).count;
    assert_eq!(in_child(&mut watch, IN_C), 1 + 7);
    assert_eq!(in_child(&mut watch, IN_RUST), 1 + 7);
    assert_eq!(in_child(&mut watch, "outside"), 2 * 7);
    assert_eq!(in_child(&mut watch, "inside"), 2 * 7);
    // The parent has none of the child's measurements.
    let mut parent = Watch::open(&only(&place, target.pid()));
    assert_nested(&mut parent, &[IN_C, IN_RUST], 2 * TIMES);
    target.go();
    target.reach("done");
    target.end_well();
}

#[test]
fn the_last_snapshot_has_the_points_of_all_copies() {
    let place = Place::new();
    let (c, rust) = (c::c_plugin(), c::rust_plugin());
    let file = folder(&place).join("last.json");
    let arguments = ["copies", "plugins-first", text(&c), text(&rust)];
    let mut target = place.start_with(TARGET, &arguments, "PFP_SNAPSHOT", &file);
    target.reach("done");
    target.end_well();
    assert_named(&file, &[IN_C, IN_RUST, "outside", "inside"]);
}

#[test]
fn more_copies_than_a_program_needs_share_a_segment() {
    const PLUGINS: u64 = 20;
    let place = Place::new();
    let c = c::c_plugin();
    let all: Vec<_> = (0..PLUGINS).map(|at| another(&place, &c, &format!("{at}.so"))).collect();
    let all: Vec<_> = all.iter().map(PathBuf::as_path).collect();
    let mut target = start(&place, "nested", &all);
    target.reach("done");
    let mut watch = Watch::open(&only(&place, target.pid()));
    assert_nested(&mut watch, &[IN_C], TIMES * PLUGINS);
    target.end_well();
}

/// The copies are in a program, a plugin in C, a plugin with another version of pfp, and a plugin
/// by another compiler. In each run, another one of them leads.
#[test]
fn copies_of_other_versions_and_compilers_share_a_segment() {
    let (c, other) = (c::c_plugin(), other::version());
    let mut plugins = vec![c, other];
    plugins.extend(other::compiler("copies of pfp that another compiler has built"));
    let all: Vec<_> = plugins.iter().map(PathBuf::as_path).collect();
    let times = TIMES * plugins.len() as u64;
    for leads in std::iter::once(None).chain(plugins.iter().map(Some)) {
        let place = Place::new();
        // A library that is preloaded runs before the program.
        let first = leads.map_or(Path::new(""), PathBuf::as_path);
        let libraries = all.iter().map(|path| text(path));
        let arguments: Vec<_> = ["copies", "nested"].into_iter().chain(libraries).collect();
        let mut target = place.start_with(TARGET, &arguments, "LD_PRELOAD", first);
        target.reach("done");
        let mut watch = Watch::open(&only(&place, target.pid()));
        assert_nested(&mut watch, &[IN_C, IN_RUST], times);
        let picture = watch.poll();
        assert_eq!((picture.lanes.len(), picture.losses.begins_missed), (1, 0));
        target.end_well();
    }
}

/// A plugin that follows can use the whole API, and reads its own figures.
#[test]
fn a_copy_that_follows_can_use_the_whole_api() {
    let mut plugins = vec![c::rust_plugin(), other::version()];
    plugins
        .extend(other::compiler("all that a copy of pfp can do that another compiler has built"));
    for plugin in plugins {
        let place = Place::new();
        let file = folder(&place).join("by-the-plugin.json");
        let mut target = place.start(TARGET, &["copies", "everything", text(&plugin), text(&file)]);
        target.reach("done");
        let mut watch = Watch::open(&only(&place, target.pid()));
        let picture = watch.poll();
        assert_eq!(picture.name, "a program with a plugin");
        assert_eq!(
            picture.lanes.iter().filter(|lane| lane.lane.name == b"of the plugin").count(),
            1
        );
        assert_eq!(watch::named(picture, "by hand").count, 2);
        // The plugin makes one mismatched end on purpose.
        assert_eq!(picture.lanes.iter().map(|lane| lane.errors.mismatched_ends).sum::<u64>(), 1);
        assert_named(&file, &["by hand", "another name", "third"]);
        target.end_well();
    }
}

/// Changes, in a library, the version of the table through which copies of pfp call each other. The
/// version then differs from the version of all other copies.
fn make_incompatible(library: &Path) {
    let mut bytes = std::fs::read(library).expect("it was copied");
    let head: Vec<u8> = [4_u32, 16, 1].into_iter().flat_map(u32::to_ne_bytes).collect();
    let head = [head.as_slice(), b"pfp\0"].concat();
    let found: Vec<_> =
        (0..bytes.len() - 32).filter(|at| bytes[*at..].starts_with(&head)).collect();
    assert_eq!(found.len(), 1, "one note in {}", library.display());
    // The version is in the library's ELF note, and in the code that compares it with the versions
    // of other copies.
    let version: [u8; 8] = std::array::from_fn(|at| bytes[found[0] + head.len() + at]);
    let places: Vec<_> =
        (0..bytes.len() - 8).filter(|at| bytes[*at..].starts_with(&version)).collect();
    assert!(places.len() > 1, "{places:?}");
    places.iter().for_each(|at| bytes[*at] ^= 1);
    std::fs::write(library, bytes).expect("there is room");
}

#[test]
fn incompatible_copies_stay_apart_and_are_reported() {
    let place = Place::new();
    let other = another(&place, &c::rust_plugin(), "other.so");
    make_incompatible(&other);
    let c = c::c_plugin();
    let file = folder(&place).join("last.json");
    let arguments = ["copies", "nested", text(&other), text(&c)];
    let mut target = place.start_with(TARGET, &arguments, "PFP_SNAPSHOT", &file);
    target.reach("done");
    let entries = of(&place, target.pid());
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert!(entries.iter().all(|entry| entry.state == Liveness::Alive));
    let mut watches: Vec<_> = entries.iter().map(Watch::open).collect();
    let counts = |watch: &mut Watch| [IN_RUST, IN_C, "outside"].map(|it| sums(watch, &[it]).count);
    let mut found: Vec<_> = watches.iter_mut().map(counts).collect();
    found.sort_unstable();
    assert_eq!(found, [[0, TIMES, 2 * TIMES], [TIMES, 0, 0]]);

    // The viewer reports the reason, and how to choose a segment.
    let pid = target.pid().to_string();
    let output = place.pfp_top(&["--once", "-p", &pid]);
    assert!(!output.status.success(), "{output:?}");
    let listed: Vec<Value> =
        serde_json::from_slice(&place.pfp_top(&["list", "--json"]).stdout).expect("it is JSON");
    assert_eq!(listed.len(), 2);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    for it in &listed {
        let number = it["number"].as_str().expect("it is a text");
        assert!(errors.contains(number), "{number}: {errors}");
        pfp_tests::well(&place.pfp_top(&["--once", "-p", number]));
    }
    let doctor = String::from_utf8(place.pfp_top(&["doctor"]).stdout).expect("it is text");
    assert!(doctor.contains("copies of pfp that do not fit together"), "{doctor}");
    target.end_well();
    // Both copies have the same file name for their last snapshot. The copy that ends first writes
    // the file, and the other copy does not overwrite it.
    let taken: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("it was written")).expect("it is JSON");
    let is_there = |name: &str| {
        taken["points"].as_array().expect("it is a list").iter().any(|it| it["name"] == name)
    };
    assert_ne!(is_there(IN_RUST), is_there("outside"), "{taken}");
}

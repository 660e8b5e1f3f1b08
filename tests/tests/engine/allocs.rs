//! Allocations of regions equal, to the unit, those that a program notes itself, that valgrind
//! and heaptrack count, or that follow by arithmetic.

mod foreign;
mod leaks;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use pfp_read::files::json;
use pfp_read::snapshot::{Allocs, HeapSamples, Point, Snapshot};
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, pfp_top, text};
use pfp_tests::{lacks, together};

const ALLOCATING: &str = env!("CARGO_BIN_EXE_allocating");

/// The columns of the printed table.
const COLUMNS: &str =
    "name,allocs,alloc-bytes,freed-bytes,largest-alloc,allocs-incl,alloc-bytes-incl";

/// The file with the figures of a program.
const FIGURES: &str = "figures.json";

/// How a program's allocations are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    /// The program's own allocator.
    Itself,
    /// `pfp-top run --alloc`.
    Preload,
}

/// The command that runs a program and prints its last figures as JSON.
fn run(place: &Place, by: By, file: &Path) -> Command {
    let mut command = place.command(pfp_top());
    command.env("XDG_STATE_HOME", place.path("state"));
    command.args(["run", "--once", "--json", "--force", "--columns", COLUMNS, "-o"]).arg(file);
    if by == By::Preload {
        command.arg("--alloc").env("PFP_ALLOC_LIBRARY", c::alloc());
    }
    command.arg("--");
    command
}

/// What the regions of each point have allocated, by the file of a process. If each call has an
/// edge, the edges of a point have the same sums.
fn of_file(file: &Path) -> BTreeMap<String, Allocs> {
    of_snapshot(&json::read(file).expect("it was written"))
}

fn of_snapshot(snapshot: &Snapshot) -> BTreeMap<String, Allocs> {
    let has_all = snapshot.lanes.iter().all(|lane| lane.unplaced == 0);
    let by_caller = by_caller(snapshot);
    let of = |point: &Point| {
        let cells = snapshot.cells_of(point.id);
        let sum = cells.iter().fold(Allocs::default(), |sum, cell| sum.plus(&cell.allocs));
        let of_edges = by_caller.iter().filter(|((callee, _), _)| *callee == point.name);
        let of_edges = of_edges.fold([0; 3], |sum, (_, of)| [0, 1, 2].map(|at| sum[at] + of[at]));
        if has_all {
            assert_eq!(of_edges, [sum.allocs, sum.bytes, sum.bytes_inclusive], "{}", point.name);
        }
        sum
    };
    snapshot.points.iter().map(|point| (point.name.clone(), of(point))).collect()
}

/// Allocations, bytes and inclusive bytes by the names of callee and caller.
fn by_caller(snapshot: &Snapshot) -> BTreeMap<(String, Option<String>), [u64; 3]> {
    let name = |id| snapshot.point(id).expect("it has the point").name.clone();
    let mut sums = BTreeMap::new();
    for edge in &snapshot.edges {
        let sum = sums.entry((name(edge.point), edge.caller.map(name))).or_insert([0; 3]);
        let more = [edge.allocs, edge.alloc_bytes, edge.alloc_bytes_inclusive];
        *sum = [0, 1, 2].map(|at| sum[at] + more[at]);
    }
    sums
}

/// Runs a program, and checks that its table has the same figures as its file.
fn figures(place: &Place, by: By, program: &[&str]) -> BTreeMap<String, Allocs> {
    figures_with(place, by, program, &[])
}

/// [`figures`] of a program with these environment variables.
fn figures_with(
    place: &Place,
    by: By,
    program: &[&str],
    variables: &[(&str, &str)],
) -> BTreeMap<String, Allocs> {
    let file = place.path(FIGURES);
    let table = c::run(run(place, by, &file).args(program).envs(variables.iter().copied()));
    let table: serde_json::Value = serde_json::from_str(&table).expect("it is JSON");
    let figures = of_file(&file);
    for row in table["points"].as_array().expect("it has points") {
        let of = |field: &str| row[field].as_u64().unwrap_or_default();
        let name = row["name"].as_str().expect("it has a name");
        let allocs = figures[name];
        let shown = ["allocs", "alloc_bytes", "freed_bytes", "largest_alloc"].map(of);
        let Allocs { allocs_inclusive, bytes_inclusive, .. } = allocs;
        let shown_inclusive = ["allocs_inclusive", "alloc_bytes_inclusive"].map(of);
        assert_eq!(shown, [allocs.allocs, allocs.bytes, allocs.freed, allocs.largest], "{name}");
        assert_eq!(shown_inclusive, [allocs_inclusive, bytes_inclusive], "{name}");
    }
    figures
}

/// Calls; allocations, bytes and freed bytes, exclusive and inclusive; and the largest allocation.
fn eight(of: Allocs) -> [u64; 8] {
    let exclusive = [of.calls, of.allocs, of.bytes, of.freed];
    let inclusive = [of.allocs_inclusive, of.bytes_inclusive, of.freed_inclusive, of.largest];
    std::array::from_fn(|at| [exclusive, inclusive][at / 4][at % 4])
}

/// The figures of regions without others inside.
fn alone(calls: u64, allocs: u64, bytes: u64, freed: u64, largest: u64) -> Allocs {
    Allocs {
        calls,
        allocs,
        bytes,
        freed,
        allocs_inclusive: allocs,
        bytes_inclusive: bytes,
        freed_inclusive: freed,
        largest,
    }
}

/// The estimates by samples of the allocations of each point.
fn samples(snapshot: &Snapshot) -> BTreeMap<String, HeapSamples> {
    let of = |point: &Point| {
        let cells = snapshot.cells_of(point.id);
        cells.iter().fold(HeapSamples::default(), |sum, cell| sum.plus(&cell.heap))
    };
    snapshot.points.iter().map(|point| (point.name.clone(), of(point))).collect()
}

/// Asserts that an estimate of bytes by this number of samples is right to within five standard
/// errors.
#[track_caller]
fn assert_near(found: u64, samples: u64, bytes: u64, what: &str) {
    assert!(samples > 40, "{what}: {bytes} {found} {samples}");
    let error = bytes as f64 / (samples as f64).sqrt();
    let is_near = (found as f64 - bytes as f64).abs() < 5.0 * error;
    assert!(is_near, "{what}: {bytes} {found} {samples}");
}

/// Asserts that live memory is estimated to within five standard errors.
#[track_caller]
fn assert_live(found: HeapSamples, bytes: u64, what: &str) {
    assert_near(found.live_bytes, found.live_samples, bytes, what);
}

/// The figures that [`ALLOCATING`] has written.
fn noted_in(file: &Path) -> BTreeMap<String, [u64; 8]> {
    let noted = std::fs::read_to_string(file).expect("it was written");
    serde_json::from_str(&noted).expect("it is JSON")
}

/// Runs a case of a program that notes its allocations itself, and compares all figures.
fn compare(case: &str, by: By) {
    let place = Place::new();
    let noted = place.path("noted.json");
    let figures = figures(&place, by, &[ALLOCATING, case, text(&noted)]);
    let noted = noted_in(&noted);
    assert!(noted.values().any(|figures| figures[1] > 0), "{case} allocates");
    for (name, mut expected) in noted {
        let mut found = eight(figures[&name]);
        if by == By::Preload {
            // The library counts what the C library has given for freed memory, which is more.
            for freed in [3, 6] {
                assert!(found[freed] >= expected[freed], "{case}, {name}");
                (found[freed], expected[freed]) = (0, 0);
            }
        }
        assert_eq!(found, expected, "{case}, {name}, by {by:?}");
    }
}

#[test]
fn regions_show_what_the_program_has_noted() {
    let cases = ["nested", "by_hand", "laps", "many", "switched", "reset", "panics", "futures"];
    let all = cases.into_iter().chain(["metered", "threads"]);
    together(all.flat_map(|case| [(case, By::Itself), (case, By::Preload)]), |(case, by)| {
        compare(case, by);
    });
}

#[test]
fn tasks_show_what_they_have_noted() {
    together([By::Itself, By::Preload], |by| compare("contexts", by));
}

/// Tasks of a server are stolen by other threads while their regions are open.
#[test]
fn a_server_shows_what_its_requests_have_noted() {
    together([By::Itself, By::Preload], |by| compare("server", by));
}

#[test]
fn a_region_that_moves_to_a_new_thread_keeps_its_allocations() {
    compare("moved", By::Itself);
}

/// Allocations and allocated bytes of a program, by valgrind.
fn by_valgrind(place: &Place, program: &[&str], variables: &[(&str, &str)]) -> [u64; 2] {
    let mut command = place.command("valgrind");
    command.args(["--tool=memcheck", "--leak-check=no"]).args(program);
    command.envs(variables.iter().copied());
    let output = command.output().expect("valgrind ran just now");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let line = said.lines().find_map(|line| line.split_once("total heap usage: "));
    let (_, usage) = line.unwrap_or_else(|| panic!("no heap usage: {said}"));
    // A allocs, F frees, B bytes allocated
    let mut words = usage.split_whitespace().step_by(2).map(|word| word.replace(',', ""));
    let mut next = || words.next().and_then(|word| word.parse().ok()).expect("it is a number");
    let [allocs, _, bytes] = [(); 3].map(|()| next());
    [allocs, bytes]
}

/// Allocations and bytes of a program, by heaptrack. Its raw data have a line `+ SIZE ...` for each allocation.
fn by_heaptrack(place: &Place, program: &[&str], variables: &[(&str, &str)]) -> [u64; 2] {
    let data = place.path("heaptrack");
    let mut command = place.command("heaptrack");
    command.args(["--raw", "-o"]).arg(&data).args(program).envs(variables.iter().copied());
    c::run(&mut command);
    let lines = c::run(place.command("zstd").arg("-dc").arg(data.with_extension("raw.zst")));
    let sizes = lines.lines().filter_map(|line| line.strip_prefix("+ ")?.split(' ').next());
    let sizes = sizes.map(|size| u64::from_str_radix(size, 16).expect("it is a number"));
    sizes.fold([0, 0], |[allocs, bytes], size| [allocs + 1, bytes + size])
}

/// Compares `rounds` rounds of a program's region `work` with the counts of valgrind and of
/// heaptrack: those of twice as many rounds have that many more.
fn compare_with_others(place: &Place, program: &[&str], variables: &[(&str, &str)], rounds: u64) {
    compare_with(&[VALGRIND, HEAPTRACK], place, program, variables, rounds);
}

/// Another profiler's name, and its count of a program's allocations and bytes.
type Other = (&'static str, fn(&Place, &[&str], &[(&str, &str)]) -> [u64; 2]);
const VALGRIND: Other = ("valgrind", by_valgrind);
const HEAPTRACK: Other = ("heaptrack", by_heaptrack);

fn compare_with(
    others: &[Other],
    place: &Place,
    program: &[&str],
    variables: &[(&str, &str)],
    rounds: u64,
) {
    let [few, many] = [rounds, 2 * rounds].map(|rounds| rounds.to_string());
    let with = |rounds| [program, &[rounds]].concat();
    let found = figures_with(place, By::Preload, &with(&few), variables)["work"];
    assert_eq!(found.calls, rounds);
    for (other, count) in others {
        if lacks("allocations by another profiler", other) {
            continue;
        }
        let [few, many] = [&few, &many].map(|rounds| count(place, &with(rounds), variables));
        let expected = [many[0] - few[0], many[1] - few[1]];
        assert!(expected[0] >= 10 * rounds, "{other}: {expected:?}");
        assert_eq!([found.allocs_inclusive, found.bytes_inclusive], expected, "{other}");
    }
    assert!(found.freed >= found.bytes / 2, "{found:?}");
}

#[test]
fn a_program_in_c_allocates_as_others_count() {
    let flags = ["-lpthread", "-fno-builtin"];
    let program = c::compile(Compiler::C, "allocates", &["allocates.c"], Link::Static, flags);
    // Heaptrack does not see `memalign`.
    compare_with(&[VALGRIND], &Place::new(), &[text(&program)], &[], 20);
    if lacks("allocations of C++", Compiler::CXX.name) {
        return;
    }
    let sources = ["allocates.cpp"];
    let program =
        c::compile(Compiler::CXX, "allocates-cxx", &sources, Link::Shared, ["-std=c++17"]);
    compare_with_others(&Place::new(), &[text(&program)], &[], 20);
}

#[test]
fn programs_that_cannot_be_counted_are_refused() {
    let programs: [(&str, &[&str], &str); 3] = [
        ("started-own-malloc", &["-DOWN_MALLOC"], "it defines malloc itself; pfp_alloc"),
        ("started-static", &["-static"], "it is linked statically"),
        ("started-asan", &["-fsanitize=address"], "it is built with AddressSanitizer"),
    ];
    for (name, flags, reason) in programs {
        let package = if name == "started-asan" { "libasan8" } else { "libc6-dev" };
        if !c::builds_with(Compiler::C, flags[0], package) {
            continue;
        }
        let program = c::compile(Compiler::C, name, &["started.c"], Link::Without, flags);
        let place = Place::new();
        let refused = run(&place, By::Preload, &place.path("figures.json")).arg(&program).output();
        let refused = refused.expect("pfp-top starts");
        let said = String::from_utf8_lossy(&refused.stderr);
        let expected =
            format!("--alloc cannot count what {} allocates: {reason}", program.display());
        assert!(said.contains(&expected), "{said}");
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{said}");
        assert!(!place.path("started").exists(), "it was not started");
        // Without the option it runs.
        c::run(run(&place, By::Itself, &place.path("figures.json")).arg(&program));
    }
}

#[test]
fn an_allocator_in_c_that_calls_pfp_is_counted() {
    for link in [Link::Static, Link::Shared] {
        let name = format!("own-allocator-{link:?}");
        let program = c::compile(Compiler::C, &name, &["own_allocator.c"], link, [""; 0]);
        let place = Place::new();
        let found = figures(&place, By::Itself, &[text(&program)]);
        // In round n, a region takes n bytes, and one inside it 3 and 4; they free n and 5 bytes.
        let sum = 1000 * 1001 / 2;
        let inner = alone(1000, 2000, 7000, 5000, 4);
        assert_eq!(eight(found["inner"]), eight(inner), "{link:?}");
        let outer = Allocs {
            allocs_inclusive: 3001,
            bytes_inclusive: sum + 7001,
            freed_inclusive: sum + 5000,
            ..alone(1002, 1001, sum + 1, sum, 1000)
        };
        assert_eq!(eight(found["outer"]), eight(outer), "{link:?}");
        let snapshot = json::read(&place.path("figures.json")).expect("it was written");
        let of = |name: &str, caller: Option<&str>| {
            by_caller(&snapshot)[&(name.to_owned(), caller.map(str::to_owned))]
        };
        assert_eq!(of("inner", Some("outer")), [2000, 7000, 7000]);
        assert_eq!(of("outer", None), [1001, sum + 1, sum + 7001]);
    }
}

/// The calls, allocations and bytes of a point, exclusive and inclusive, and the largest.
fn six(figures: &BTreeMap<String, Allocs>, name: &str) -> [u64; 6] {
    let [calls, allocs, bytes, _, allocs_inclusive, bytes_inclusive, _, largest] =
        eight(figures[name]);
    [calls, allocs, bytes, allocs_inclusive, bytes_inclusive, largest]
}

#[test]
fn a_fork_an_exec_and_a_signal_handler_are_counted() {
    let sources = ["allocates_forks.c"];
    let program = c::compile(Compiler::C, "allocates-forks", &sources, Link::Static, [""; 0]);
    let place = Place::new();
    let files = ["parent.json", "child.json", "again.json"].map(|name| place.path(name));
    let [parent, child, again] = &files;
    let mut command = place.command(&program);
    command.args(&files).env("PFP_ALLOCS", "1").env("LD_PRELOAD", c::alloc());
    c::run(&mut command);
    let parent = of_file(parent);
    assert_eq!(six(&parent, "around"), [1, 1, 10, 3, 1030, 1000]);
    // The handler has allocated in the region that it interrupted.
    assert_eq!(six(&parent, "inside"), [1, 2, 1020, 2, 1020, 1000]);
    assert_eq!(parent.get("of the child"), None);
    // The region around is the parent's.
    let child = of_file(child);
    assert_eq!(six(&child, "of the child"), [1, 1, 40, 2, 90, 50]);
    assert_eq!(six(&child, "inside"), [1, 1, 50, 1, 50, 50]);
    assert_eq!(child.get("around").copied().unwrap_or_default(), Allocs::default());
    assert_eq!(six(&of_file(again), "again"), [1, 1, 60, 1, 60, 60]);
}

#[test]
fn regions_that_do_not_end_change_nothing_of_others() {
    let sources = ["allocates_left.c"];
    let flags = ["-lpthread", "-ldl"];
    let program = c::compile(Compiler::C, "allocates-left", &sources, Link::Static, flags);
    let place = Place::new();
    let file = place.path(FIGURES);
    let mut command = place.command(&program);
    command.arg(&file).arg(c::library().join("libpfp.so"));
    command.env("PFP_ALLOCS", "1").env("LD_PRELOAD", c::alloc());
    c::run(&mut command);
    let snapshot: Snapshot = json::read(&file).expect("it was written");
    let figures = of_snapshot(&snapshot);
    // A region that a jump leaves is not counted, and its allocations are of the enclosing one.
    assert_eq!(six(&figures, "jumped into"), [1, 2, 100_100, 2, 100_100, 100_000]);
    assert_eq!(six(&figures, "jumped out of"), [0; 6]);
    assert_eq!(six(&figures, "of the next thread"), [3, 0, 0, 0, 0, 0]);
    // The children have freed their copies only, and the copy loaded later takes no samples over.
    let bytes = figures["kept"].bytes;
    assert_eq!(bytes, 2 * 4000 * 4096);
    assert_live(samples(&snapshot)["kept"], bytes, "kept");
}

//! Tests of OpenMP's tool interface with LLVM's runtime: programs compiled by clang, by gcc for
//! that runtime, and scikit-learn. The expected figures follow from the program's plan, or from
//! another tool's count.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use pfp_read::files::json;
use pfp_read::snapshot::Stats;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::os::copy_program;
use pfp_tests::place::Place;
use pfp_tests::{figure, lacks, tools};

use crate::{Run, alone, file, run, text, unseen};

const CLANG: Compiler = Compiler { name: "clang", ..Compiler::C };
const GCC: Compiler = Compiler { name: "gcc", ..Compiler::C };
const REGIONS: u64 = 20;

/// The program with planned regions; `None` if the compiler has no OpenMP.
fn regions(compiler: Compiler) -> Option<PathBuf> {
    let flags = ["-std=gnu11", "-fopenmp"];
    c::has_openmp(compiler)
        .then(|| c::compile(compiler, "omp_regions", &["omp_regions.c"], Link::Without, flags))
}

/// The program compiled by clang. Several tests run it, so it is built once: replacing it while
/// another test runs it would fail.
fn regions_of_clangs() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| regions(CLANG)).clone()
}

/// The program compiled by gcc.
fn regions_of_gccs() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| regions(GCC)).clone()
}

/// LLVM's runtime, as Debian installs it.
fn runtime() -> Option<PathBuf> {
    let found = std::fs::read_dir("/usr/lib").ok()?.flatten().find_map(|folder| {
        let folder = folder.path();
        let is_llvms = folder.file_name()?.to_str()?.starts_with("llvm-");
        Some(folder.join("lib/libomp.so.5")).filter(|file| is_llvms && file.exists())
    });
    if found.is_none() {
        tools::missing("LLVM's OpenMP", "it is not installed", "apt-get install libomp-dev");
    }
    found
}

const SOURCE: &str = include_str!("../../c/omp_regions.c");

/// The first line that contains this text, counted from 1.
fn line_of(construct: &str) -> usize {
    SOURCE.lines().position(|line| line.contains(construct)).expect("it is there") + 1
}

/// The end of a point's name at this line of the source, if the object has line numbers.
fn of_line<'a>(ran: &'a Run, construct: &str, what: &str) -> &'a str {
    at_line(ran, line_of(construct), what)
}

fn at_line<'a>(ran: &'a Run, line: usize, what: &str) -> &'a str {
    // gcc assigns the call to the line before, where the surrounding loop begins.
    let ends = [line, line - 1].map(|line| format!(" omp_regions.c:{line}{what}"));
    let is_it = |name: &String| ends.iter().any(|end| name.ends_with(end));
    let names: Vec<_> = ran.snapshot.points.iter().map(|point| &point.name).collect();
    let found = names.iter().find(|name| is_it(name));
    let found = found.unwrap_or_else(|| panic!("none of {ends:?} in {names:?}"));
    assert!(!found.starts_with(' '), "the function is named: {found}");
    found
}

fn figures(ran: &Run, name: &str) -> Vec<Stats> {
    let point = ran.snapshot.points.iter().find(|point| point.name == name).expect("it is there");
    ran.threads(&point.file, name).into_iter().filter(|stats| stats.count > 0).collect()
}

fn sum(stats: &[Stats], part: fn(&Stats) -> u64) -> u64 {
    stats.iter().map(part).sum()
}

const UNEVEN: &str = "#pragma omp parallel num_threads(2) reduction(+ : all)";

/// Checks the planned imbalance, and that busy and wait add up to the whole time of a region's
/// threads.
fn judge(ran: &Run) {
    let named = |what: &str| figures(ran, of_line(ran, UNEVEN, what));
    let (busy, wait, wall) = (named(" busy"), named(" wait"), named(""));
    assert_eq!(sum(&wall, |it| it.count), REGIONS);
    assert_eq!(sum(&busy, |it| it.count), 2 * REGIONS);
    assert_eq!(sum(&wait, |it| it.count), 2 * REGIONS);
    assert_eq!(busy.len(), 2, "{busy:?}");
    // One thread works twenty times as much as the other.
    let own = busy.iter().map(|it| it.exclusive);
    let (most, least) = (own.clone().max().unwrap(), own.min().unwrap());
    let imbalance = most as f64 / least as f64;
    // Includes the time off the CPU, since a busy thread may have to wait for a CPU.
    let inclusive = |stats: &[Stats]| sum(stats, |it| it.exclusive + it.off_cpu);
    let both = inclusive(&busy) + inclusive(&wait);
    let off = both as f64 / (2 * inclusive(&wall)) as f64 - 1.0;
    figure(&format!("openmp: busy {imbalance:.2} : 1, busy and wait {off:+.5} from the wall"));
    // Other programs may slow one thread's CPU down, so the limit is far below the planned 20. If
    // waits counted as work, both threads would have equal figures.
    assert!(imbalance > 3.0, "{imbalance}");
    assert!(off.abs() < 0.001, "{off:+.5}");
}

/// A wait is counted for each lock that the program acquired, and for no failed try.
fn judge_locks(ran: &Run) {
    let waits = |call: &str| {
        let ends = format!(" omp_regions.c:{} lock wait", line_of(call));
        let names = ran.snapshot.points.iter().map(|point| &point.name);
        let found: Vec<_> = names.filter(|name| name.ends_with(&ends)).collect();
        found.into_iter().flat_map(|name| figures(ran, name)).map(|it| it.count).sum::<u64>()
    };
    let calls = ["omp_set_lock(&plain)", "failed -= omp_test_lock", "omp_set_nest_lock(&nested)"];
    assert_eq!(calls.map(waits), [1; 3]);
    assert_eq!(waits("failed += !omp_test_lock"), 0, "a try that fails is no wait");
    ran.lost_nothing();
}

/// The arguments include pauses between the regions, which do not count as waits.
fn arguments() -> [String; 3] {
    [REGIONS.to_string(), "200000".into(), "20".into()]
}

#[test]
fn a_planned_imbalance_is_shown_and_pauses_do_not_count_as_waits() {
    let Some(program) = regions_of_clangs() else { return };
    let arguments = arguments();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let ran = run(&[], &program, &arguments);
    judge(&ran);
    judge_locks(&ran);
    // Another tool counts equally many regions.
    let place = Place::new();
    let counted = place.path("counted");
    let flags = ["-std=gnu11", "-shared", "-fPIC", "-fopenmp"];
    let tool = c::compile(CLANG, "omp_counter.so", &["omp_counter.c"], Link::Without, flags);
    let mut command = Command::new(&program);
    command.args(&arguments).env("OMP_TOOL_LIBRARIES", tool).env("OMP_COUNTER", &counted);
    c::run(&mut command);
    let counted = std::fs::read_to_string(counted).expect("the tool has counted");
    let walls = ran.snapshot.points.iter().filter(|point| point.wall);
    let regions: u64 = walls.map(|point| ran.count(&point.file, &point.name)).sum();
    assert_eq!(counted.trim(), format!("regions {regions}"));
    // The program computes the same result without the profiler; only the first line differs, since
    // it has the thread's id.
    let (watched, alone) = (ran.printed, alone(&program, &arguments));
    assert!(watched.lines().skip(1).eq(alone.lines().skip(1)), "{watched}{alone}");
}

#[test]
fn a_gcc_program_runs_on_llvms_runtime_on_request() {
    let (Some(program), Some(runtime)) = (regions_of_gccs(), runtime()) else { return };
    let arguments = arguments();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let ran = run(&["--openmp-runtime", text(&runtime)], &program, &arguments);
    judge(&ran);
    let alone = alone(&program, &arguments);
    assert!(ran.printed.lines().skip(1).eq(alone.lines().skip(1)), "{}{alone}", ran.printed);
}

#[test]
fn nested_parallel_regions_are_counted_separately() {
    let Some(program) = regions_of_clangs() else { return };
    let ran = run(&[], &program, &[&REGIONS.to_string(), "1000"]);
    let outer = line_of("static unsigned long nested") + 4;
    for (line, regions, members) in [(outer, 1, 2), (outer + 2, 2, 2)] {
        let count = |what: &str| sum(&figures(&ran, at_line(&ran, line, what)), |it| it.count);
        assert_eq!(count(""), regions * REGIONS, "line {line}");
        // By default an inner region gets no extra threads, so it has one member each time.
        assert_eq!(count(" busy"), members * REGIONS, "line {line}");
        assert_eq!(count(" wait"), members * REGIONS, "line {line}");
    }
    ran.lost_nothing();
}

/// Compares a runtime whose threads sleep at once with one whose threads never sleep.
#[test]
fn a_waits_sleep_is_off_the_cpu_and_its_spinning_is_on_it() {
    let Some(program) = regions_of_clangs() else { return };
    let spun = |block_time: &str| {
        let block_time = format!("KMP_BLOCKTIME={block_time}");
        // A spinning thread never yields, however busy the machine is.
        let arguments = [&block_time, "KMP_USE_YIELD=0", text(&program), "10", "400000"];
        let ran = run(&[], Path::new("/usr/bin/env"), &arguments);
        let wait = figures(&ran, of_line(&ran, UNEVEN, " wait"));
        let on = sum(&wait, |it| it.exclusive) as f64;
        on / (on + sum(&wait, |it| it.off_cpu) as f64)
    };
    let (slept, spun) = (spun("0"), spun("infinite"));
    figure(&format!("openmp: of a wait, {slept:.3} and {spun:.3} spun"));
    assert!(slept < spun / 2.0, "{slept} {spun}");
}

/// Without symbols, the name of a region is the file and the address in it.
#[test]
fn without_symbols_a_region_has_its_address() {
    let Some(program) = regions_of_clangs() else { return };
    if lacks("regions without symbols", "strip") || lacks("their lines", "addr2line") {
        return;
    }
    let place = Place::new();
    let stripped = place.path("stripped");
    c::run(Command::new("strip").arg("-s").arg("-o").arg(&stripped).arg(&program));
    let ran = run(&[], &stripped, &[&REGIONS.to_string(), "1000"]);
    let walls: Vec<_> = ran.snapshot.points.iter().filter(|point| point.wall).collect();
    let mut lines = Vec::new();
    for point in &walls {
        let address = point.name.strip_prefix("stripped+0x");
        let address = address.unwrap_or_else(|| panic!("no address: {}", point.name));
        // The return address is just after the call.
        let call = u64::from_str_radix(address, 16).expect("it is a number") - 1;
        let mut lookup = Command::new("addr2line");
        let found = c::run(lookup.arg("-e").arg(&program).arg(format!("{call:#x}")));
        let found = found.trim().split(' ').next().unwrap_or_default().to_owned();
        let line: usize = found.rsplit(':').next().unwrap().parse().expect("it has a line");
        lines.push((line, ran.count(&point.file, &point.name)));
    }
    for (line, regions) in [(line_of(UNEVEN), 1), (line_of("static unsigned long nested") + 4, 1)] {
        assert!(lines.contains(&(line, regions * REGIONS)), "line {line} in {lines:?}");
    }
    ran.lost_nothing();
}

#[test]
fn a_runtime_without_functions_that_the_program_needs_is_refused() {
    let (Some(program), Some(runtime)) = (regions_of_gccs(), runtime()) else { return };
    let place = Place::new();
    let refused = |runtime: &str, program: &str, why: &str| {
        let output = place.pfp_top(&["run", "--openmp-runtime", runtime, "--once", "--", program]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
    };
    refused("/no/such/file", text(&program), "/no/such/file");
    refused(text(&c::inject()), text(&program), "is no OpenMP runtime");
    // The program calls a function that no runtime has.
    let write = |name: &str, code: &str| {
        let source = place.path(name);
        std::fs::write(&source, code).expect("there is room");
        source
    };
    let later = write("later.c", "void GOMP_of_tomorrow(void);\nvoid GOMP_of_tomorrow(void) {}\n");
    let flags = ["-shared", "-fPIC"];
    let later = c::compile(GCC, "omp_later.so", &[text(&later)], Link::Without, flags);
    let code = "void GOMP_of_tomorrow(void);\nint main(void) { GOMP_of_tomorrow(); return 0; }\n";
    let lacking = write("lacking.c", code);
    let flags = ["-Wl,--no-as-needed", text(&later)];
    let lacking = c::compile(GCC, "omp_lacking", &[text(&lacking)], Link::Without, flags);
    let why = "lacks GOMP_of_tomorrow, which";
    refused(text(&runtime), text(&lacking), why);
    // A library that another library needs calls the function.
    let code = "void GOMP_of_tomorrow(void);\nvoid inner(void);\n\
        void inner(void) { GOMP_of_tomorrow(); }\n";
    let shared = |library| ["-shared", "-fPIC", "-Wl,--no-as-needed", library];
    let inner = write("inner.c", code);
    let inner =
        c::compile(GCC, "libomp_inner.so", &[text(&inner)], Link::Without, shared(text(&later)));
    let code = "void inner(void);\nvoid outer(void);\nvoid outer(void) { inner(); }\n";
    let flags = shared(text(&inner));
    let outer = write("outer.c", code);
    let outer = c::compile(GCC, "libomp_outer.so", &[text(&outer)], Link::Without, flags);
    let flags = ["-Wl,--no-as-needed", text(&outer)];
    let code = "void outer(void);\nint main(void) { outer(); return 0; }\n";
    let lacking = write("far.c", code);
    let lacking = c::compile(GCC, "omp_far", &[text(&lacking)], Link::Without, flags);
    let why = format!("lacks GOMP_of_tomorrow, which {} calls", inner.display());
    refused(text(&runtime), text(&lacking), &why);
}

#[test]
fn scikit_learn_has_as_many_regions_as_another_tool_counts() {
    let (Some(python), Some(runtime)) = (tools::annotated("scikit-learn"), runtime()) else {
        return;
    };
    let script = file("learn.py");
    let ran = run(&["--openmp-runtime", text(&runtime)], &python, &[text(&script)]);
    assert_eq!(ran.printed, alone(&python, &[text(&script)]));
    let place = Place::new();
    let counted = place.path("counted");
    let flags = ["-std=gnu11", "-shared", "-fPIC", "-fopenmp"];
    let tool = c::compile(CLANG, "omp_counter_too.so", &["omp_counter.c"], Link::Without, flags);
    let mut command = Command::new(&python);
    command.arg(&script).env("OMP_TOOL_LIBRARIES", tool).env("OMP_COUNTER", &counted);
    c::run(command.env("LD_PRELOAD", &runtime));
    let counted = std::fs::read_to_string(counted).expect("the tool has counted");
    let walls = ran.snapshot.points.iter().filter(|point| point.wall);
    let regions: u64 = walls.map(|point| ran.count(&point.file, &point.name)).sum();
    figure(&format!("openmp, scikit-learn: {regions} regions"));
    assert!(regions > 100);
    assert_eq!(counted.trim(), format!("regions {regions}"));
}

/// GCC's own runtime has no interface for tools, and the viewer prints that.
#[test]
fn the_viewer_explains_why_gccs_runtime_shows_no_regions() {
    let Some(program) = regions_of_gccs() else { return };
    let said = unseen(&program, &[&REGIONS.to_string(), "1000"]);
    assert!(said.contains("libgomp") && said.contains("--openmp-runtime FILE"), "{said}");
}

/// A program or library with regions in two functions of these names.
fn named(what: &str, [first, second]: [&str; 2], flags: &[&str]) -> PathBuf {
    let names = [format!("-DFIRST={first}"), format!("-DSECOND={second}")];
    let names = names.iter().map(String::as_str);
    let all = names.chain(["-std=gnu11", "-fopenmp"]).chain(flags.iter().copied());
    c::compile(CLANG, &format!("{what}_{first}"), &["omp_replaced.c"], Link::Without, all)
}

/// Runs a program, replaces a file that it has loaded, and reads the names of regions from a
/// viewer's snapshot; then kills the program and reads them again.
fn names_after(place: &Place, program: &Path, replaced: &Path, by: &Path) -> [String; 2] {
    let mut command = place.command(program);
    command.env("OMP_TOOL_LIBRARIES", c::inject()).env("LD_LIBRARY_PATH", place.folder());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = command.spawn().expect("it starts");
    let mut line = String::new();
    let output = running.stdout.take().expect("it is a pipe");
    BufReader::new(output).read_line(&mut line).expect("it can be read");
    assert_eq!(line, "ran\n");
    // Replaces the file by a rename, as a package manager does.
    let new = place.path("new");
    std::fs::copy(by, &new).expect("there is room");
    std::fs::rename(&new, replaced).expect("the folder is ours");
    let pid = running.id().to_string();
    let shown = || {
        let file = place.path("shown.json");
        let output = place.pfp_top(&["snapshot", "--force", "-p", &pid, "-o", text(&file)]);
        tools::well(&output);
        let snapshot = json::read(&file).expect("it can be read");
        let names = snapshot.points.into_iter().filter(|point| point.file.starts_with("openmp:"));
        names.map(|point| point.name + "\n").collect::<String>()
    };
    let while_it_runs = shown();
    running.kill().expect("it runs");
    let _ = running.wait();
    [while_it_runs, shown()]
}

#[test]
fn a_replaced_file_is_not_read_for_names() {
    if !c::has_openmp(CLANG) {
        return;
    }
    let (ours, others) = (["alpha", "beta"], ["delta", "gamma_"]);
    let is_none_of_others = |names: &str| !others.iter().any(|name| names.contains(name));
    let place = Place::new();
    let program = place.path("solver");
    copy_program(named("omp_program", ours, &[]), &program);
    let upgrade = named("omp_program", others, &[]);
    let [running, ended] = names_after(&place, &program, &program, &upgrade);
    // The kernel keeps the executable of a running program.
    assert!(ours.iter().all(|name| running.contains(name)), "{running}");
    assert!(is_none_of_others(&running) && is_none_of_others(&ended), "{running}{ended}");
    assert!(ended.contains("solver+0x"), "{ended}");

    let place = Place::new();
    let library = place.path("libsolver.so");
    let shared = ["-shared", "-fPIC", "-DLIBRARY"];
    std::fs::copy(named("omp_library", ours, &shared), &library).expect("there is room");
    let folder = format!("-L{}", text(place.folder()));
    let program =
        named("omp_user", ours, &["-DPROGRAM", &folder, "-Wl,--no-as-needed", "-lsolver"]);
    let upgrade = named("omp_library", others, &shared);
    for names in names_after(&place, &program, &library, &upgrade) {
        assert!(is_none_of_others(&names) && !names.is_empty(), "{names}");
    }
}

//! The Python package, tested with two installed interpreters: Debian's, for which `.ci/run`
//! installs packages, and the newest other version, on the path or in pyenv's folder. With
//! the feature `torture`, it is tested with all from 3.10 on.

mod wheel;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;

use pfp_read::files::json;
use pfp_read::snapshot::{Loss, Point, ProcessState, Snapshot};
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, count, pfp_top};
use pfp_tests::python::{self, script};
use pfp_tests::{size, tools};

/// Interpreters other than Debian's own.
const OTHERS: [&str; 5] = ["python3.10", "python3.12", "python3.13", "python3.14", "python3.15"];

/// The interpreters, and the folder of the third-party program.
struct Pythons {
    all: Vec<PathBuf>,
    pygments: PathBuf,
}

fn pythons(what: &str) -> Option<Pythons> {
    let own = tools::python(what, "python", "tests/python/requirements.txt")?;
    let found = Command::new(&own)
        .args(["-c", "import pygments, os; print(os.path.dirname(pygments.__file__))"])
        .output()
        .expect("it starts");
    let pygments = String::from_utf8_lossy(&found.stdout).trim().into();
    let mut all = vec![own];
    let (found, missing): (Vec<_>, Vec<_>) =
        OTHERS.iter().map(|name| (name, other(name))).partition(|(_, path)| path.is_some());
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        for (name, _) in missing {
            tools::skipped("Python", &format!("there is no {name}, which Debian does not have"));
        }
    });
    let others = found.into_iter().rev().filter_map(|(_, path)| path);
    all.extend(others.take(size(1, OTHERS.len() as u64) as usize));
    Some(Pythons { all, pygments })
}

/// An interpreter on the path, or one that pyenv has installed. The latter is searched for in
/// pyenv's folder, since pyenv's commands on the path start only the version in use.
fn other(name: &str) -> Option<PathBuf> {
    if tools::is_there(name) {
        return Some(name.into());
    }
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv"));
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or_else(home)?;
    let versions = std::fs::read_dir(pyenv.join("versions")).ok()?;
    versions.flatten().map(|its| its.path().join("bin").join(name)).find(|path| path.exists())
}

/// The package as a wheel installs it, next to the third-party program.
fn packages(place: &Place, pygments: &Path) -> PathBuf {
    let folder = python::package(place);
    // The link may exist already.
    let _ = std::os::unix::fs::symlink(pygments, folder.join("pygments"));
    folder
}

impl Pythons {
    /// A command of an interpreter that finds the package.
    fn command(&self, place: &Place, program: &Path, python: &Path) -> Command {
        let mut command = place.command(program);
        command
            .env("PYTHONPATH", packages(place, &self.pygments))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        if program != python {
            command.args(["run", "--once", "--sum", "-o"]).arg(place.path("snapshot.json"));
            command.arg("--log").arg(place.path("log")).arg("--").arg(python);
        }
        command
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

/// Calls of each function, with its file, line and name.
fn calls(snapshot: &Snapshot) -> Vec<(String, u32, String, u64)> {
    let count = |id| {
        let cells = snapshot.cells.iter().filter(|cell| cell.point == id);
        cells.map(|cell| cell.stats.count).sum()
    };
    let points = snapshot.points.iter().filter(|point| point.line > 0);
    let of = |point: &pfp_read::snapshot::Point| {
        (point.file.clone(), point.line, point.name.clone(), count(point.id))
    };
    points.map(of).filter(|(.., count)| *count > 0).collect()
}

#[test]
fn each_call_is_counted_as_cprofile_counts_it() {
    let Some(pythons) = pythons("a program of others") else { return };
    for python in &pythons.all {
        let place = Place::new();
        let input = script("regions.py");
        let mut measured = pythons.command(&place, python, python);
        measured.env("PFP_SNAPSHOT", place.path("snapshot.json"));
        let arguments = |out: &str| ["-m", "pygments", "-f", "html", "-o", out].map(str::to_owned);
        let [ours, theirs, bare] = ["ours", "theirs", "bare"].map(|name| place.path(name));
        let text = |path: &Path| path.to_str().expect("it is plain text").to_owned();
        let output =
            measured.args(["-m", "pfp"]).args(arguments(&text(&ours))).arg(&input).output();
        let output = output.expect("it starts");
        pfp_tests::well(&output);
        let (stats, profile) = (place.path("stats"), ["-m", "cProfile", "-o"]);
        let mut other = pythons.command(&place, python, python);
        other.args(profile).arg(&stats).args(arguments(&text(&theirs))).arg(&input);
        c::run(&mut other);
        c::run(pythons.command(&place, python, python).args(arguments(&text(&bare))).arg(&input));
        let results = [ours, theirs, bare].map(|path| std::fs::read(path).expect("it was written"));
        assert!(results[0] == results[1] && results[0] == results[2], "{python:?}");

        let listed =
            c::run(pythons.command(&place, python, python).arg(script("counts.py")).arg(&stats));
        let expected = |file: &str, line: u32, name: &str| {
            listed.lines().find_map(|row| {
                let parts: Vec<&str> = row.split('\t').collect();
                let [calls, its_line, its_file, its_name] = parts[..] else { return None };
                let is_it = its_file == file && its_line.parse() == Ok(line) && its_name == name;
                is_it.then(|| calls.parse::<u64>().ok()).flatten()
            })
        };
        let snapshot = json::read(&place.path("snapshot.json")).expect("it can be read");
        let calls = calls(&snapshot);
        assert!(calls.len() > 100, "{python:?}: {calls:?}");
        for (file, line, name, count) in &calls {
            assert!(name.starts_with("pygments."), "{name}");
            let short = name.rsplit('.').next().unwrap_or_default();
            assert_eq!(expected(file, *line, short), Some(*count), "{python:?}: {name}");
        }
        let total: u64 = calls.iter().map(|(.., count)| count).sum();
        pfp_tests::figure(&format!("{python:?}: {} functions, {total} calls", calls.len()));
    }
}

#[test]
fn regions_and_functions_are_counted_exactly() {
    let Some(pythons) = pythons("regions of Python") else { return };
    for (python, is_watched) in pythons.all.iter().flat_map(|it| [(it, false), (it, true)]) {
        let place = Place::new();
        let snapshot = place.path("snapshot.json");
        let mut command = pythons.command(&place, python, python);
        command.args(is_watched.then_some(["-m", "pfp"]).into_iter().flatten());
        command.arg(script("regions.py")).arg(&snapshot).args(is_watched.then_some("regions"));
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{python:?}, {is_watched}: {}", said(&output));
        assert!(said(&output).contains("all is as it was to be"), "{}", said(&output));
        let snapshot = json::read(&snapshot).expect("it can be read");
        let read = snapshot.points.iter().find(|point| point.name == "read").expect("it is there");
        assert!(read.file.ends_with("regions.py") && read.line > 0, "{read:?}");
        assert_eq!(snapshot.losses[Loss::MismatchedEnds], 0, "{python:?}");
    }
}

#[test]
fn code_that_is_made_again_and_again_is_one_point() {
    let Some(pythons) = pythons("code that is made at run time") else { return };
    for python in &pythons.all {
        let place = Place::new();
        let mut command = pythons.command(&place, python, python);
        command.env("PFP_SNAPSHOT", place.path("snapshot.json"));
        let output =
            command.args(["-m", "pfp"]).arg(script("made.py")).output().expect("it starts");
        assert!(output.status.success(), "{python:?}: {}", said(&output));
        assert!(said(&output).contains("all is as it was to be"), "{}", said(&output));
        // One point is the script's own module, the other one is all code that the script compiles.
        let snapshot = json::read(&place.path("snapshot.json")).expect("it can be read");
        let modules = snapshot.points.iter().filter(|point| point.name == "made.<module>");
        assert_eq!(modules.count(), 2, "{python:?}");
    }
}

#[test]
fn each_function_survives_an_exhausted_heap() {
    let Some(pythons) = pythons("Python without memory") else { return };
    let flags = ["-shared", "-fPIC"];
    let refuses = c::compile(Compiler::C, "refuses.so", &["refuses.c"], Link::Without, flags);
    for (python, is_watched) in pythons.all.iter().flat_map(|it| [(it, false), (it, true)]) {
        let place = Place::new();
        let mut command = pythons.command(&place, python, python);
        command.env("LD_PRELOAD", &refuses).current_dir(place.folder());
        command.args(is_watched.then_some(["-m", "pfp"]).into_iter().flatten());
        let output = command.arg(script("no_heap.py")).output().expect("it starts");
        assert_eq!(said(&output), "all is as it was to be\n", "{python:?}, {is_watched}");
    }
}

#[test]
fn greenlets_have_regions_of_their_own() {
    let Some(pythons) = pythons("greenlets") else { return };
    let has_greenlets = |python: &&PathBuf| {
        let found = Command::new(python).args(["-c", "import greenlet"]).output();
        let is_there = found.is_ok_and(|output| output.status.success());
        if !is_there {
            tools::skipped("greenlets", &format!("{} has no greenlet", python.display()));
        }
        is_there
    };
    let runs = pythons.all.iter().filter(has_greenlets).flat_map(|python| {
        [(false, false), (true, false), (false, true)]
            .map(|(watched, replaced)| (python, watched, replaced))
    });
    for (python, is_watched, is_replaced) in runs {
        let place = Place::new();
        let mut command = pythons.command(&place, python, python);
        command.args(is_watched.then_some(["-m", "pfp"]).into_iter().flatten());
        command.arg(script("greenlets.py")).arg(if is_watched { "greenlets" } else { "" });
        command.args(is_replaced.then_some("replaced"));
        command.env("PFP_SNAPSHOT", place.path("snapshot.json"));
        let output = command.output().expect("it starts");
        let which = format!("{python:?}, {is_watched}, {is_replaced}: {}", said(&output));
        assert!(output.status.success(), "{which}");
        assert!(said(&output).contains("all is as it was to be"), "{which}");
        let snapshot = json::read(&place.path("snapshot.json")).expect("it can be read");
        // If another trace function replaces pfp's, pfp misses a switch and gives up the regions
        // that are open across it. The switch and the ends of these regions count as mismatched.
        let mismatched = snapshot.losses[Loss::MismatchedEnds];
        assert_eq!(mismatched > 0, is_replaced, "{mismatched}, {which}");
        assert_eq!(snapshot.losses[Loss::BeginsRefused], 0, "{which}");
    }
}

#[test]
fn children_are_a_group_and_the_status_is_the_programs() {
    let Some(pythons) = pythons("children of Python") else { return };
    let runs = pythons.all.iter().flat_map(|python| {
        ["fork", "forkserver", "spawn"].map(|way| [(python, way, true), (python, way, false)])
    });
    for (python, way, is_watched) in runs.flatten() {
        let place = Place::new();
        let mut command = pythons.command(&place, pfp_top(), python);
        command.args(is_watched.then_some(["-m", "pfp"]).into_iter().flatten());
        // The script's path is relative here, but new interpreters of `multiprocessing` see it as
        // an absolute path.
        command.current_dir(script("")).args(["workers.py", way]);
        let output = command.output().expect("it starts");
        let log = std::fs::read_to_string(place.path("log")).unwrap_or_default();
        let which = format!("{python:?}, {way}, {is_watched}");
        assert_eq!(output.status.code(), Some(3), "{which}: {}\n{log}", said(&output));
        let sum: u64 = (0..40u64).map(|n| (0..n).map(|i| i * i).sum::<u64>()).sum();
        assert!(log.contains(&sum.to_string()), "{log}");
        let snapshot = json::read(&place.path("snapshot.json")).expect("it can be read");
        let calls = calls(&snapshot);
        let count = |name: &str| {
            calls.iter().filter(|(.., its, _)| its == name).map(|(.., count)| count).sum::<u64>()
        };
        assert_eq!(count("part"), 40, "{which}: {calls:?}");
        assert_eq!(count("workers.work"), if is_watched { 40 } else { 0 }, "{which}: {calls:?}");
        // In the sum of the processes, each function is one point.
        for (.., name, _) in &calls {
            let same = calls.iter().filter(|(.., its, _)| its == name).count();
            assert_eq!(same, 1, "{which}: {calls:?}");
        }
    }
}

#[test]
fn forked_children_end_in_order_and_write_their_snapshots() {
    let Some(pythons) = pythons("children of Python that end by os._exit") else { return };
    let ways = ["os", "fork", "executor", "forkserver", "spawn"];
    for (python, way) in pythons.all.iter().flat_map(|python| ways.map(|way| (python, way))) {
        let place = Place::new();
        let mut command = pythons.command(&place, python, python);
        command.env("PFP_SNAPSHOT", place.path("last-%p.json"));
        let output = command.arg(script("ends.py")).arg(way).output().expect("it starts");
        assert!(output.status.success(), "{python:?}, {way}: {}", said(&output));
        let files = std::fs::read_dir(place.folder()).expect("it is there").flatten();
        let written = files.map(|file| file.path()).filter(|path| path.extension().is_some());
        let written: Vec<Snapshot> =
            written.map(|path| json::read(&path).expect("it can be read")).collect();
        // The program and its three children have written a snapshot each.
        assert_eq!(written.len(), 4, "{python:?}, {way}");
        for snapshot in &written {
            assert_eq!(snapshot.process.state, ProcessState::Exited, "{python:?}, {way}");
            let has_worked = |point: &Point| point.name.ends_with(".work");
            let point = snapshot.points.iter().find(|point| has_worked(point));
            assert!(count(snapshot, &point.expect("it was called").name) > 0, "{python:?}, {way}");
        }
        assert_eq!(place.lit(), [""; 0], "{python:?}, {way}: nothing is left");

        // If all processes write to one file, the program's figures must be in it, although its
        // children end first. Spawned children are not tested: they run exit handlers of their own.
        if way == "spawn" {
            continue;
        }
        let one = place.path("one.json");
        let mut command = pythons.command(&place, python, python);
        let program = command.env("PFP_SNAPSHOT", &one).arg(script("ends.py")).arg(way).spawn();
        let mut program = program.expect("it starts");
        assert!(program.wait().expect("it ends").success(), "{python:?}, {way}");
        let snapshot = json::read(&one).expect("it can be read");
        assert_eq!(snapshot.process.pid, program.id(), "{python:?}, {way}");
    }
}

#[test]
fn scripts_that_cannot_run_are_reported() {
    let Some(pythons) = pythons("python -m pfp") else { return };
    let python = &pythons.all[0];
    let place = Place::new();
    let script = place.path("script.py");
    std::fs::write(&script, "import sys\nprint(sys.argv[1:], __name__)\n1 / 0\n").unwrap();
    let script = script.to_str().expect("it is plain text");
    for (arguments, code, expected) in [
        (&[][..], 2, "expected a script, or -m and a module, found neither"),
        (&["--include"], 2, "expected one argument"),
        (&["/nowhere.py"], 1, "expected a script or a folder with one, found no '/nowhere.py'"),
        (&["-m", "no_such_module"], 1, "No module named no_such_module"),
        (&[script, "-x", "--include"], 1, "['-x', '--include'] __main__"),
        (&[script], 1, "ZeroDivisionError"),
    ] {
        let mut command = pythons.command(&place, python, python);
        let output = command.args(["-m", "pfp"]).args(arguments).output().expect("it starts");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(expected), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn a_build_without_a_gil_is_refused() {
    let Some(pythons) = pythons("free-threaded Python") else { return };
    let place = Place::new();
    let mut command = pythons.command(&place, &pythons.all[0], &pythons.all[0]);
    // Free-threaded builds of Python have this flag.
    let output = command.args(["-c", "import sys; sys.abiflags = 't'; import pfp"]).output();
    let said = said(&output.expect("it starts"));
    assert!(said.contains("ImportError: pfp: expected an interpreter with a GIL"), "{said}");
}

#[test]
fn other_tools_may_hold_all_monitoring_ids() {
    let Some(pythons) = pythons("sys.monitoring") else { return };
    for python in &pythons.all {
        let place = Place::new();
        let mut command = pythons.command(&place, python, python);
        let taken = "import sys\nfor place in range(6) if hasattr(sys, 'monitoring') else ():\n    \
                     sys.monitoring.use_tool_id(place, 'other')\n";
        std::fs::write(place.path("packages").join("sitecustomize.py"), taken).unwrap();
        let program = "import pfp, sys\n@pfp.function\ndef work(): pass\nwork()\n\
                       assert pfp.stats()['__main__.work']['count'] == 1\n\
                       print(hasattr(sys, 'monitoring'))\n";
        std::fs::write(place.path("script.py"), program).unwrap();
        let has_places = c::run(command.arg(place.path("script.py"))).contains("True");
        let mut command = pythons.command(&place, python, python);
        let output = command.args(["-m", "pfp"]).arg(place.path("script.py")).output();
        let said = said(&output.expect("it starts"));
        let is_refused = said.contains("found that other tools use all of them");
        assert_eq!(is_refused, has_places, "{python:?}: {said}");
    }
}

#[test]
fn modules_are_included_and_excluded() {
    let Some(pythons) = pythons("--include and --exclude") else { return };
    for python in &pythons.all {
        let place = Place::new();
        std::fs::write(
            place.path("helper.py"),
            "import pfp\ndef help():\n    pass\n@pfp.function\ndef marked():\n    pass\n",
        )
        .unwrap();
        std::fs::write(
            place.path("script.py"),
            "import helper, textwrap\nhelper.help()\nhelper.marked()\ntextwrap.dedent('  x')\n",
        )
        .unwrap();
        let points = |options: &[&str]| {
            let _ = std::fs::remove_file(place.path("snapshot.json"));
            let mut command = pythons.command(&place, python, python);
            command.env("PFP_SNAPSHOT", place.path("snapshot.json"));
            c::run(command.args(["-m", "pfp"]).args(options).arg(place.path("script.py")));
            let snapshot = json::read(&place.path("snapshot.json")).expect("it can be read");
            let mut names: Vec<_> =
                calls(&snapshot).into_iter().map(|(.., name, _)| name).collect();
            names.sort();
            names
        };
        let all = ["helper.<module>", "helper.help", "helper.marked", "script.<module>"];
        assert_eq!(points(&[]), all, "{python:?}");
        // Functions that the program marks are always measured.
        assert_eq!(points(&["--exclude", "help*"]), all[2..], "{python:?}");
        let included = points(&["--include", "textwrap", "--exclude", "helper"]);
        let has = |name: &str| included.iter().any(|its| its == name);
        assert!(has("textwrap.dedent") && !has("helper.help"), "{included:?}");
    }
}

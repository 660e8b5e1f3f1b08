//! Snapshot files and copies of segments: the program's and the viewer's agree. Whatever happens
//! while a file is written, the old file or the new one is there.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pfp_read::snapshot::{ProcessState, Snapshot};
use pfp_read::source;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::faults;
use pfp_tests::place::{Place, pfp_top, text};
use pfp_tests::target::Target;
use pfp_tests::{figure, lacks, lacks_namespaces, size, skipped};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// A folder for a test's files, outside the folder of beacons.
fn files(place: &Place) -> PathBuf {
    let folder = place.path("files");
    fs::create_dir(&folder).expect("the directory is ours");
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).expect("it is there").map(|file| file.unwrap().file_name());
    let mut names: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn opened(path: &Path) -> Snapshot {
    source::open(path).and_then(|mut source| source.poll()).expect("the file can be read")
}

/// The output of a command that must have succeeded.
fn well(output: Output) -> String {
    pfp_tests::well(&output)
}

/// A program that has saved its figures and is idle. Returns the folder for files, the file that it
/// has written there, and the program.
fn saved(place: &Place) -> (PathBuf, PathBuf, Target) {
    let folder = files(place);
    let own = folder.join("own.json");
    let mut target = place.start(TARGET, &["saved", text(&own)]);
    target.reach("saved");
    (folder, own, target)
}

/// Asserts that two snapshots are of one moment, except for the time between two polls.
#[track_caller]
fn assert_same(one: &Snapshot, other: &Snapshot) {
    // Each part is compared separately, so that the failure shows what differs.
    assert_eq!((&one.format, one.version), (&other.format, other.version));
    assert_eq!(one.process, other.process);
    assert_eq!(one.clock, other.clock);
    assert_eq!(one.points, other.points);
    assert_eq!(one.lanes, other.lanes);
    assert_eq!(one.cells.len(), other.cells.len());
    for (one, other) in one.cells.iter().zip(&other.cells) {
        assert_eq!(one, other);
    }
    assert_eq!(one.records.len(), other.records.len());
    for (one, other) in one.records.iter().zip(&other.records) {
        assert_eq!(one, other);
    }
    assert_eq!(one.losses, other.losses);
}

/// Count, exclusive, least and most ticks of a point, over all its cells.
fn figures(snapshot: &Snapshot, name: &str) -> Vec<u64> {
    let point = snapshot.points.iter().find(|point| point.name.contains(name));
    let id = point.unwrap_or_else(|| panic!("there is no point {name:?}")).id;
    let cells = snapshot.cells.iter().filter(|cell| cell.point == id);
    let all: Vec<_> = cells.flat_map(|cell| [&cell.stats, &cell.retired]).collect();
    vec![
        all.iter().map(|stats| stats.count).sum(),
        all.iter().map(|stats| stats.exclusive).sum(),
        all.iter().map(|stats| stats.min).min().unwrap_or(0),
        all.iter().map(|stats| stats.max).max().unwrap_or(0),
    ]
}

#[test]
fn the_program_and_the_viewer_write_the_same_snapshot() {
    let place = Place::new();
    let (folder, own, mut target) = saved(&place);
    let said = target.said().clone();
    assert_eq!(said.one::<String>("first"), "saved");
    assert_eq!(said.one::<String>("second"), "AlreadyExists");

    let (pid, seen) = (target.pid().to_string(), folder.join("seen.json"));
    well(place.pfp_top(&["snapshot", "-p", &pid, "-o", text(&seen)]));
    let packed = folder.join("seen.json.zst");
    well(place.pfp_top(&["snapshot", "-p", &pid, "-o", text(&packed)]));
    let raw = folder.join("seen.pfp");
    well(place.pfp_top(&["save-raw", "-p", &pid, "-o", text(&raw)]));
    let raw_packed = folder.join("seen.pfp.zst");
    well(place.pfp_top(&["save-raw", "-p", &pid, "-o", text(&raw_packed)]));

    let (first, seen) = (opened(&own), opened(&seen));
    assert_same(&first, &seen);
    assert!(first.elapsed_ticks <= seen.elapsed_ticks && first.taken_unix_ns < seen.taken_unix_ns);
    for other in [&packed, &raw, &raw_packed] {
        let other = opened(other);
        assert_same(&first, &other);
        assert!(seen.elapsed_ticks <= other.elapsed_ticks);
        assert!(seen.taken_unix_ns < other.taken_unix_ns);
    }
    assert_eq!(first.process.name, "the \"saving\" one");
    assert_eq!(first.process.state, ProcessState::Running);
    let count = 100 + 50 + 2 * 1_000 + 3_000;
    for (name, expected) in [("nasty", count), ("reset", count - 100)] {
        let known: Vec<u64> = said.all(name).pop().expect("it was said");
        let shown = if name == "nasty" { "\"quoted\\ → " } else { "reset in between" };
        assert_eq!(figures(&first, shown), known);
        assert_eq!(known[0], expected);
    }
    assert_eq!(figures(&first, "outer")[0], count);
    let reset = first.points.iter().find(|point| point.name == "reset in between").unwrap();
    assert_eq!((reset.resets, reset.alpha), (1, Some(0.25)));
    assert!(first.lanes.iter().any(|lane| lane.name == "second"));
    assert!(!first.records.is_empty());
    let in_histogram = |cell: &pfp_read::snapshot::Cell| -> u64 {
        cell.histogram.iter().map(|bucket| bucket.count).sum()
    };
    for cell in &first.cells {
        assert_eq!(in_histogram(cell), cell.stats.count + cell.retired.count);
    }
    // The screen shows all snapshots alike, in columns that do not depend on the time.
    let columns = ["--columns", "name,count,excl,avg,min,max,p50,p99", "--sort", "name"];
    let shown = |path: &Path| {
        let table = well(place.pfp_top(&[&["open", text(path), "--once"], &columns[..]].concat()));
        table.lines().skip(1).map(|line| line.to_owned() + "\n").collect::<String>()
    };
    let of_own = shown(&own);
    assert!(of_own.contains("reset in between"), "{of_own}");
    for other in [&packed, &raw, &raw_packed] {
        assert_eq!(shown(other), of_own, "{}", other.display());
        let report = well(place.pfp_top(&["diff", text(&own), text(other), "--json"]));
        assert!(report.starts_with('{'), "{report}");
    }

    target.go();
    let said = target.reach("done").clone();
    assert_eq!(said.one::<String>("over"), "saved");
    assert_eq!(said.one::<String>("nowhere"), "NotFound");
    assert_eq!(figures(&opened(&own), "outer")[0], count + 7);
    target.end_well();
    let expected = ["own.json", "seen.json", "seen.json.zst", "seen.pfp", "seen.pfp.zst"];
    assert_eq!(names(&folder), expected);
}

#[test]
fn a_crashed_segment_is_copied_and_shown() {
    let place = Place::new();
    let (folder, own, mut target) = saved(&place);
    let pid = target.pid().to_string();
    target.kill();
    let raw = folder.join("crashed.pfp");
    well(place.pfp_top(&["save-raw", "-p", &pid, "-o", text(&raw)]));
    // `save-raw` overwrites a file only with `--force`.
    let copied = fs::read(&raw).expect("it is there");
    let again = place.pfp_top(&["save-raw", "-p", &pid, "-o", text(&raw)]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--force"), "{again:?}");
    assert!(fs::read(&raw).expect("it is there") == copied);
    well(place.pfp_top(&["save-raw", "-p", &pid, "-o", text(&raw), "--force"]));
    let nobody = place.pfp_top(&["save-raw", "-p", "4294967295", "-o", text(&raw)]);
    assert_eq!(nobody.status.code(), Some(3), "{nobody:?}");

    let entry = place.entries().pop().expect("it is left");
    // Unlike a copy by `save-raw`, a plain copy of the object has no note of when it was made, and
    // has the unused parts.
    let plain = folder.join("plain.pfp");
    fs::copy(format!("/dev/shm{}", entry.info.object), &plain).expect("there is room");
    well(place.pfp_top(&["gc"]));
    assert!(place.entries().is_empty());

    let own = opened(&own);
    for copy in [&raw, &plain] {
        let mut left = opened(copy);
        // A copy counts as a dead process, without the reason for its end.
        assert_eq!(left.process.state, ProcessState::Ended);
        left.process.state = ProcessState::Running;
        assert_same(&left, &own);
    }
    let table = well(place.pfp_top(&["open", text(&raw), "--once"]));
    assert!(
        table.contains("ENDED, CAUSE UNKNOWN") && table.contains("reset in between"),
        "{table}"
    );
    // Only the parts in use take disk space.
    let about = fs::metadata(&raw).expect("it is there");
    let blocks = std::os::unix::fs::MetadataExt::blocks(&about) * 512;
    figure(&format!("snapshots: a copy of {} KiB takes {} KiB", about.len() >> 10, blocks >> 10));
    assert!(blocks < about.len() / 2, "{blocks} of {}", about.len());
}

/// Each process that makes an orderly exit writes a file, and nothing else changes.
#[test]
fn a_program_saves_its_figures_when_it_ends() {
    let place = Place::new();
    let folder = files(&place);
    let run = |how: &str, file: Option<&str>| {
        let mut command = place.command(TARGET);
        command.args(["ends", how]).current_dir(&folder);
        if let Some(file) = file {
            command.env("PFP_SNAPSHOT", file);
        }
        let output = command.output().expect("the target can be started");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).expect("it says text")
    };
    run("alone", None);
    assert!(names(&folder).is_empty());

    // A relative path is resolved in the folder where the process starts, and not in the one where
    // it ends.
    let said = run("alone", Some("own-%p.json"));
    let [name] = &names(&folder)[..] else { panic!("{:?}", names(&folder)) };
    let own = opened(&folder.join(name));
    assert_eq!(*name, format!("own-{}.json", own.process.pid));
    assert_eq!(own.process.state, ProcessState::Exited);
    let known = said.lines().find_map(|line| line.strip_prefix("reset ")).expect("it was said");
    let known: Vec<u64> = known.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_eq!(figures(&own, "reset in between"), known);
    assert!(place.entries().is_empty(), "the segment is gone all the same");
    fs::remove_file(folder.join(name)).expect("it is ours");

    // A child that has measured writes its own figures; a child that has not writes none.
    let said = run("with-children", Some("%p"));
    let child = said.lines().find_map(|line| line.strip_prefix("child ")).expect("it was said");
    let all = names(&folder);
    assert!(all.len() == 2 && all.iter().any(|name| name == child), "{all:?}");
    assert_eq!(figures(&opened(&folder.join(child)), "outer")[0], 5);

    // Writing fails because the file exists, the folder does not, or a limit is reached.
    fs::write(folder.join("precious"), "old").expect("the directory is ours");
    run("alone", Some("precious"));
    assert_eq!(fs::read(folder.join("precious")).expect("it is there"), b"old");
    for wrong in ["", "/", ".", "/nowhere/at/all", "/proc/self/a", "/dev/null", "/dev/null/a"] {
        run("alone", Some(wrong));
    }
    run("with-a-file-limit", Some("too-long"));
    assert_eq!(names(&folder).len(), 3, "{:?}", names(&folder));
}

#[test]
fn a_program_in_c_saves_its_figures() {
    let Some(compiler) = Compiler::all().next() else {
        return;
    };
    let program = c::compile(compiler, "saved", &["saved.c"], Link::Shared, [""; 0]);
    let place = Place::new();
    let folder = files(&place);
    let (own, last) = (folder.join("own.json"), folder.join("last.json"));
    let arguments = [text(&own)];
    let mut target = place.start_with(&program, &arguments, "PFP_SNAPSHOT", &last);
    target.reach("saved");
    assert_eq!(figures(&opened(&own), "work")[0], 1_000);
    assert!(!last.exists());
    target.end_well();
    assert_eq!(figures(&opened(&last), "work")[0], 1_000);
    assert_eq!(names(&folder), ["last.json", "own.json"]);
}

// ---- kills and full disks ----

/// A way to write a file: a command for the file's path.
struct Writing<'a> {
    what: &'a str,
    command: Box<dyn Fn(&Path) -> Command + 'a>,
    /// Whether the command replaces an existing file.
    replaces: bool,
    /// The content of the new file, if it is always the same; otherwise it is a snapshot.
    content: Option<Vec<u8>>,
}

/// Exports that are larger than the full disk.
const EXPORTS: [&str; 4] = ["perfetto", "chrome", "speedscope", "svg-trace"];
/// Number of these exports to test.
const TRIED: u64 = size(1, EXPORTS.len() as u64);

/// All commands that write a file about an idle process, or from a snapshot of it.
fn writings<'a>(place: &'a Place, pid: &'a str, snapshot: &'a Path) -> Vec<Writing<'a>> {
    let viewer = move |words: &'static [&'static str], end: &'static str| {
        Box::new(move |path: &Path| {
            let mut command = place.command(pfp_top());
            command.args(words).args(["-p", pid, "-o"]).arg(path.join(format!("file{end}")));
            command
        })
    };
    let at_exit = Box::new(|path: &Path| {
        let mut command = place.command(TARGET);
        command.args(["ends", "alone"]).env("PFP_SNAPSHOT", path.join("file"));
        // Under the tracer, threads are switched out all the time, and the other clocks would make
        // a system call each time.
        command.env("PFP_CLOCK", "wall");
        command
    });
    let writing = |what, command: Box<dyn Fn(&Path) -> Command + 'a>, replaces| Writing {
        what,
        command,
        replaces,
        content: None,
    };
    let mut all = vec![
        writing("snapshot", viewer(&["snapshot", "--force"], ""), true),
        writing("a new snapshot", viewer(&["snapshot"], ""), false),
        writing("packed", viewer(&["snapshot", "--force"], ".zst"), true),
        writing("raw", viewer(&["save-raw", "--force"], ""), true),
        writing("PFP_SNAPSHOT", at_exit, false),
    ];
    for (number, format) in (0..TRIED).zip(EXPORTS) {
        // Alternates between a new file and an existing file that is replaced.
        let replaces = number % 2 == 0;
        let export = move |output: Option<&Path>| {
            let mut command = place.command(pfp_top());
            command.args(["export", format]).arg(snapshot);
            if let Some(output) = output {
                command.arg("-o").arg(output);
            }
            if replaces {
                command.arg("--force");
            }
            command
        };
        let content = export(None).output().expect("pfp-top starts").stdout;
        assert!(content.len() > 16 << 10, "{format}: {}", content.len());
        let command = Box::new(move |path: &Path| export(Some(&path.join("file"))));
        all.push(Writing { content: Some(content), ..writing(format, command, replaces) });
    }
    all
}

/// The system calls of a trace from the first one that touches the folder, each with its number
/// among the thread's calls of that name.
fn calls_from(trace: &str, folder: &str) -> Vec<(String, usize)> {
    let mut made: std::collections::HashMap<(&str, &str), usize> = Default::default();
    let (mut calls, mut begun) = (Vec::new(), None);
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let Some((name, arguments)) = call.trim_start().split_once('(') else { continue };
        if !name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        {
            continue;
        }
        let count = made.entry((thread, name)).or_default();
        *count += 1;
        if begun.is_none() && name != "execve" && arguments.contains(folder) {
            begun = Some(thread);
        }
        if begun == Some(thread) {
            calls.push((name.to_owned(), *count));
        }
    }
    calls
}

/// A command is killed at each system call from the first that touches the folder to the end:
/// afterwards the old file or the new one is there and complete, and the next attempt succeeds.
#[test]
fn a_kill_at_any_step_leaves_the_old_file_or_the_new_one() {
    if lacks("a kill at each step of writing", "strace") {
        return;
    }
    let place = Place::new();
    let (folder, own, target) = saved(&place);
    let pid = target.pid().to_string();
    for Writing { what, command, replaces, content } in writings(&place, &pid, &own) {
        let (mut kills, mut old, mut new, mut litter) = (0, 0, 0, 0);
        let into = folder.join("kills");
        let start = |inject: Option<String>, trace: &Path| {
            let options: Vec<&str> = inject.iter().flat_map(|it| ["-e", it.as_str()]).collect();
            let mut traced = faults::traced(&command(&into), &options, trace);
            traced.stdout(Stdio::null()).output().expect("strace starts")
        };
        let prepare = || {
            let _ = fs::remove_dir_all(&into);
            fs::create_dir(&into).expect("the directory is ours");
            if replaces {
                for name in ["file", "file.zst"] {
                    fs::write(into.join(name), "old").expect("there is room");
                }
            }
        };
        prepare();
        let trace = folder.join("trace");
        let output = start(None, &trace);
        assert!(output.status.success(), "{what}: {output:?}");
        let traced = fs::read_to_string(&trace).expect("strace has written it");
        let calls = calls_from(&traced, text(&into));
        assert!(calls.iter().any(|(name, _)| name == "fsync"), "{what}: {calls:?}");
        for (number, (call, count)) in calls.into_iter().enumerate() {
            // Kills at reads and writes are alike, so an ordinary run has every fourth of them.
            let is_like_others =
                matches!(&*call, "read" | "write") && number % size(4, 1) as usize != 0;
            if call.starts_with("exit") || is_like_others {
                continue;
            }
            prepare();
            start(Some(format!("inject={call}:signal=SIGKILL:when={count}")), &trace);
            kills += 1;
            for name in names(&into) {
                let path = into.join(&name);
                if name.starts_with(pfp_shm_layout::atomic_file::DRAFT) {
                    litter += 1;
                } else if fs::read(&path).expect("it is there") == b"old" {
                    old += 1;
                } else if let Some(content) = &content {
                    assert!(fs::read(&path).expect("it is there") == *content, "{what}");
                    new += 1;
                } else {
                    assert_eq!(figures(&opened(&path), "reset in between")[0], 5_050);
                    new += 1;
                }
            }
            // Leftovers of the killed command do not hinder the next one.
            if !replaces {
                let _ = fs::remove_file(into.join("file"));
            }
            if count % 3 == 0 || litter > 0 {
                let output = command(&into).stdout(Stdio::null()).output().expect("it starts");
                assert!(output.status.success(), "{what} after {call} {count}: {output:?}");
            }
        }
        figure(&format!(
            "snapshots: {what}: {kills} kills, the old file {old} times, the new one {new}, \
             a draft left {litter} times"
        ));
        assert!(kills > 5 && new > 0 && (old > 0) == replaces, "{what}: {kills}, {old}, {new}");
    }
    target.end_well();
}

/// On a full disk, and under a limit of a file's size, the old file stays, no other file is left,
/// and the error states the reason.
#[test]
fn a_full_disk_leaves_the_old_file() {
    if lacks_namespaces("a full disk", &["--mount"]) {
        return;
    }
    let place = Place::new();
    let (folder, own, target) = saved(&place);
    let pid = target.pid().to_string();
    for Writing { what, command, replaces, .. } in writings(&place, &pid, &own) {
        let into = folder.join("full");
        let _ = fs::create_dir(&into);
        let plain = command(&into);
        let words = |command: &Command| -> String {
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words.map(|word| format!("'{}' ", word.to_str().unwrap())).collect()
        };
        let script = format!(
            "mount -t tmpfs -o size=16k tmpfs '{full}' || exit 99\n\
             cd '{full}'\n\
             {old}\n\
             {run} >/dev/null\n\
             echo status $?\n\
             ls -A\n\
             cat file* 2>/dev/null",
            full = text(&into),
            old = if replaces { "printf old >file; cp file file.zst" } else { ":" },
            run = words(&plain),
        );
        let mut shell = place.command("unshare");
        shell.args(["-m", "sh", "-c", &script]);
        for (name, value) in plain.get_envs() {
            if let Some(value) = value {
                shell.env(name, value);
            }
        }
        let output = shell.output();
        let output = match output {
            Ok(output) if output.status.code() != Some(99) => output,
            other => return skipped("a full disk", &format!("{other:?}")),
        };
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<_> = said.lines().collect();
        if what == "PFP_SNAPSHOT" {
            assert_eq!((lines, errors.as_str()), (vec!["status 0"], ""), "{what}");
        } else {
            let kept = if replaces { vec!["file", "file.zst", "oldold"] } else { vec![] };
            assert_eq!(lines, [vec!["status 2"], kept].concat(), "{what}: {errors}");
            assert!(errors.contains("No space left"), "{what}: {errors}");
        }
    }
    // `PFP_SNAPSHOT` is left out, since the system would send its program a signal at the limit.
    let all = writings(&place, &pid, &own).into_iter();
    for Writing { what, command, .. } in all.filter(|writing| writing.what != "PFP_SNAPSHOT") {
        let into = folder.join("limited");
        let _ = fs::create_dir(&into);
        let mut command = command(&into);
        let limit = libc::rlimit { rlim_cur: 8192, rlim_max: 8192 };
        // SAFETY: the closure makes one system call between fork and exec.
        unsafe {
            command.pre_exec(move || {
                let result = libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        let output = command.output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{what}: {output:?}");
        assert!(names(&into).is_empty(), "{what}: {:?}", names(&into));
    }
    target.end_well();
}

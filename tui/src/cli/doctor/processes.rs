//! Checks of instrumented programs and their leftovers.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::beacon::Info;
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::failure::{self, Failure, Stage};
use pfp_shm_layout::find::{self, Entry};
use pfp_shm_layout::header::{Facts, ProcessState as Said};
use pfp_shm_layout::liveness::{Identity, Liveness, is_stopped};
use pfp_shm_layout::name::Name;
use pfp_shm_layout::segment::{OpenError, Segment};
use pfp_shm_layout::truncation;

use super::CheckResult;
use pfp_read::snapshot::{End, ProcessState, state};
use pfp_read::source::LostSegment;
use pfp_read::source::namespaces::{effective_user, is_own};

const ABOUT: &str = "processes";

pub(super) fn processes() -> Vec<CheckResult> {
    // Another check reports unreadable folders.
    let (found, _) = find::find_everywhere();
    let mut findings = Vec::new();
    let here = Identity::of_this_process();
    for place in found {
        if place.truncated {
            let shown = place.looked_in.display();
            findings.push(
                CheckResult::problem(ABOUT, format!("{shown} has more files than pfp-top reads"))
                    .advice("`pfp-top gc` removes what ended programs left"),
            );
        }
        for (path, why) in &place.unreadable {
            findings.push(
                CheckResult::problem(ABOUT, format!("{}: {why}", path.display()))
                    .advice("of another version of pfp, or damaged: then `pfp-top gc` removes it"),
            );
        }
        findings.extend(place.entries.iter().map(|entry| process(ABOUT, entry, &here)));
        findings.extend(several_copies(&place.entries));
        let failures = Directory::open(&place.looked_in).and_then(|dir| failure::find(&dir));
        findings.extend(failures.unwrap_or_default().iter().map(|note| failed(ABOUT, note)));
    }
    if findings.is_empty() {
        findings.push(
            CheckResult::note(ABOUT, "no instrumented process is running")
                .advice("`pfp-top demo` shows one; `pfp-top run -- CMD` starts one"),
        );
    }
    findings
}

/// Findings about objects that have a segment's name but are something else, such as a link: a
/// program whose segment would get this name measures nothing. Also finds segments of this user
/// whose beacon is missing.
pub(super) fn objects(shm: &Path) -> Vec<CheckResult> {
    const ABOUT: &str = "segments";
    let own = effective_user();
    let (found, _) = find::find_everywhere();
    let known: HashSet<Name> =
        found.iter().flat_map(|place| &place.entries).map(|entry| entry.info.object).collect();
    let (mut findings, mut elsewhere, mut left) = (Vec::new(), [0; 2], [0; 2]);
    for file in fs::read_dir(shm).into_iter().flatten().flatten() {
        let name = file.file_name();
        let Some(name) = Name::parse(&format!("/{}", name.to_string_lossy())) else { continue };
        let Ok(meta) = fs::symlink_metadata(file.path()) else { continue };
        let kind = meta.file_type();
        let shown = file.path().display().to_string();
        if !kind.is_file() || meta.nlink() > 1 {
            let what = if kind.is_symlink() {
                "a symbolic link"
            } else if kind.is_file() {
                "a file with several names"
            } else if kind.is_dir() {
                "a folder"
            } else {
                "neither a file nor a folder"
            };
            let found = format!("{shown}: expected a segment, found {what} of uid {}", meta.uid());
            findings.push(
                CheckResult::problem(ABOUT, found)
                    .advice("not created by pfp: remove it (no program will use it)"),
            );
        } else if meta.uid() == own && !known.contains(&name) {
            let sum = match LostSegment::of(name) {
                Some(lost) if lost.runs => {
                    findings.push(not_found_any_more(ABOUT, &lost));
                    continue;
                }
                Some(_) => &mut left,
                None => &mut elsewhere,
            };
            *sum = [sum[0] + 1, sum[1] + meta.blocks() * 512];
        }
    }
    let note = |[n, bytes]: [u64; 2], of: &str| {
        let found = format!("{n} in {}, {} KiB, {of}", shm.display(), bytes >> 10);
        (n > 0).then(|| CheckResult::note(ABOUT, found))
    };
    let left = note(left, "of programs that ended, and whose beacons are gone");
    findings.extend(left.map(|it| it.advice("`pfp-top gc` removes them")));
    let elsewhere = note(elsewhere, "without a beacon here");
    findings.extend(elsewhere.map(|it| {
        it.advice(
            "their programs put their beacons elsewhere, such as with PFP_DIR or in a container: \
             look there",
        )
    }));
    findings
}

/// The finding for a program whose beacon was removed. The program runs, or may run in another pid
/// namespace.
pub(super) fn not_found_any_more(about: &'static str, lost: &LostSegment) -> CheckResult {
    let Facts { exe, pid, folder, pid_namespace, .. } = &lost.facts;
    let exe = file_name(Path::new(exe));
    if *pid_namespace == 0 || !is_own(*pid_namespace) {
        let space = if *pid_namespace == 0 { "an unknown" } else { "another" };
        let found = format!(
            "{exe}, process {pid} of {space} pid namespace, has no beacon in {folder} any more"
        );
        return CheckResult::note(about, found).advice(format!(
            "if it has ended, remove /dev/shm{}; if it runs, start it again",
            lost.object
        ));
    }
    let found = format!("{exe} [{pid}] runs, but its beacon is gone from {folder}");
    CheckResult::problem(about, found).advice(
        "the folder was emptied: restart the program, and keep cleaners of old files away from the \
         folder",
    )
}

/// The finding for a program whose last start failed, with the cause and advice.
pub(super) fn failed(about: &'static str, note: &Failure) -> CheckResult {
    let exe = file_name(&note.exe);
    let what = match note.stage {
        Stage::Segment => "could not measure: no segment in /dev/shm",
        Stage::Process => "could not measure: no private memory",
        Stage::Beacon => "measures and cannot be found: no beacon",
    };
    let why = match note.errno {
        0 => String::new(),
        errno => format!(" ({})", io::Error::from_raw_os_error(errno)),
    };
    CheckResult::problem(about, format!("{exe} [{}] {what}{why}", note.pid))
        .advice(note.stage.advice(note.errno))
}

fn file_name(exe: &Path) -> Cow<'_, str> {
    exe.file_name().unwrap_or(exe.as_os_str()).to_string_lossy()
}

/// Findings about processes with several segments. The copies of pfp in a process share one segment
/// unless their versions are incompatible.
fn several_copies(entries: &[Entry]) -> Vec<CheckResult> {
    let mut copies: BTreeMap<(u64, u32, u64), Vec<&Entry>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.state == Liveness::Alive) {
        let process = &entry.info.process;
        copies.entry((process.pidns, process.pid, process.start)).or_default().push(entry);
    }
    let several = copies.values().filter(|entries| entries.len() > 1).map(|entries| {
        let info = &entries[0].info;
        let (exe, pid, n) = (file_name(&info.exe), info.process.pid, entries.len());
        let found =
            format!("{exe} [{pid}] has {n} segments, of copies of pfp that do not fit together");
        CheckResult::note(ABOUT, found).advice(
            "the program and its libraries were linked with different versions of pfp: link all \
             with the same one, or choose a segment with -p and its number in `pfp-top list`",
        )
    });
    several.collect()
}

pub(super) fn process(about: &'static str, entry: &Entry, here: &Identity) -> CheckResult {
    let info = &entry.info;
    let exe = file_name(&info.exe);
    let name = if info.name.is_empty() { &exe } else { info.name.as_str() };
    let who = format!("{name} [{}]", info.process.pid);
    match (entry.state, entry.object_bytes) {
        (Liveness::Dead | Liveness::Gone, Some(bytes)) => {
            let found = format!("{who} {}; {} KiB are kept", how_it_ended(info), bytes >> 10);
            CheckResult::note(about, found)
                .advice("`pfp-top -p PID` shows its last figures; `pfp-top gc` removes them")
        }
        (Liveness::Dead | Liveness::Gone, None) => {
            CheckResult::note(about, format!("{who} is gone and so are its figures"))
                .advice("`pfp-top gc` removes the beacon")
        }
        (Liveness::Alive, None) => CheckResult::note(
            about,
            format!("{who} runs, but its segment is not in /dev/shm"),
        )
        .advice(
            "it is just starting or ending, or has another /dev/shm: share that of its container",
        ),
        (Liveness::Alive, Some(bytes)) => match open(info) {
            Ok(segment) => {
                let is_here = info.process.pidns == here.pidns;
                let does = match is_here && is_stopped(info.process.pid) {
                    true => "is stopped, by SIGSTOP or a terminal,",
                    false => "runs",
                };
                let mut found = format!("{who} {does} and can be watched; {} KiB", bytes >> 10);
                if !is_here {
                    found.push_str("; its id counts in another pid namespace");
                }
                of_clock(about, &segment, found)
            }
            Err(error) => CheckResult::problem(about, format!("{who} cannot be read: {error}"))
                .advice("use the pfp-top of the version that the program was built with"),
        },
    }
}

/// How a process ended, in words that follow its name.
fn how_it_ended(info: &Info) -> Cow<'static, str> {
    let counters = |segment: Segment| segment.counters().state.load(Relaxed);
    let exited_cleanly = open(info).is_ok_and(|segment| counters(segment) == Said::Exited as u64);
    let end = if is_own(info.process.pidns) { info.process.end(info.process.pid) } else { None };
    let end = end.map(End::from);
    state::ended(ProcessState::of_dead(exited_cleanly, end.as_ref()), end.as_ref())
        .unwrap_or_default()
}

/// Opens a segment. If the segment is truncated later, reading it does not kill this process.
fn open(info: &Info) -> Result<Segment, OpenError> {
    truncation::survive()?;
    Ok(Segment::open(&info.object)?.0)
}

/// Checks the clock and the build of a process that can be watched. `found` is the text of the
/// finding so far.
fn of_clock(about: &'static str, segment: &Segment, mut found: String) -> CheckResult {
    let counters = segment.counters();
    let astray: u64 = (0..=segment.overflow_lane())
        .take(usize::try_from(counters.lanes_used.load(Relaxed)).unwrap_or(usize::MAX))
        .filter_map(|lane| Some(segment.lane(lane)?.counters.anomalies.load(Relaxed)))
        .fold(0, u64::saturating_add);
    let rate = counters.ticks_per_1000_s.load(Relaxed) as f64 / 1000.0;
    let pair_ns = counters.overhead_pair.load(Relaxed) as f64 / rate * 1e9;
    if counters.debug.load(Relaxed) == 1 && is_unoptimised(pair_ns) {
        found.push_str(&format!(
            "; pfp is built without optimisation: a region costs {pair_ns:.0} ns"
        ));
        return CheckResult::note(about, found).advice(OPTIMISE);
    }
    let replaced = counters.system_clock.load(Relaxed) == 1;
    if astray > 0 {
        found.push_str(&format!("; its tick counter went astray {astray} times"));
    }
    if replaced {
        found.push_str("; the system's clock is read in place of the tick counter");
    }
    if astray == 0 && !replaced {
        return CheckResult::ok(about, found);
    }
    CheckResult::note(about, found).advice(
        "the kernel's log (dmesg) may report an unstable clock source; on-CPU times are right \
         nevertheless",
    )
}

const OPTIMISE: &str = "set opt-level = 3 for pfp-probe and pfp-shm-layout in \
     [profile.dev.package.NAME] of the program's Cargo.toml: its other code stays as it is";

/// Whether a probe with debug assertions is also unoptimised. An unoptimised begin and end take
/// some 700 ns together. With the settings in [`OPTIMISE`], which keep the assertions, they take 20
/// to 60 ns.
fn is_unoptimised(pair_ns: f64) -> bool {
    pair_ns.is_finite() && pair_ns > 200.0
}

/// Findings about other users' folders of beacons. Only root and the owner of a folder can watch
/// the programs in it, so this user would search for them in vain.
pub(super) fn other_users() -> Vec<CheckResult> {
    let own = effective_user();
    if own == 0 {
        return Vec::new();
    }
    let list = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    let temporary = list("/tmp")
        .filter(|entry| entry.file_name().as_bytes().starts_with(b"pfp-"))
        .map(|entry| entry.path());
    let runtime = list("/run/user").map(|entry| entry.path().join("pfp"));
    let theirs = |path: PathBuf| {
        let meta = fs::symlink_metadata(&path).ok()?;
        (meta.is_dir() && meta.uid() != own).then_some((meta.uid(), path))
    };
    let finding = |(uid, path): (u32, PathBuf)| {
        let found = format!(
            "{} is of uid {uid}, whose programs only they and root can watch",
            path.display()
        );
        CheckResult::note("other users", found).advice("`sudo pfp-top`")
    };
    temporary.chain(runtime).filter_map(theirs).map(finding).collect()
}

pub(super) fn containers() -> Vec<CheckResult> {
    const ABOUT: &str = "container";
    let mut findings = Vec::new();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let is_nested = ids.split_whitespace().count() > 1;
    let mark = ["/.dockerenv", "/run/.containerenv"].iter().find(|mark| Path::new(mark).exists());
    let what = match mark {
        Some(mark) => Some(format!("this is a container ({mark})")),
        None => is_nested.then(|| "this is a pid namespace of its own".into()),
    };
    findings.extend(what.map(|what| {
        CheckResult::note(ABOUT, what).advice(
            "programs outside are seen only if /dev/shm and the folder of beacons are shared",
        )
    }));
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    if let (Some(own), Some(first)) = (namespace("self"), namespace("1"))
        && own != first
    {
        findings.push(CheckResult::note(
            ABOUT,
            "the file systems seen here are not those of process 1 (a mount namespace)",
        ));
    }
    if !Path::new("/proc/self/stat").exists() {
        findings.push(
            CheckResult::problem(ABOUT, "/proc is not mounted")
                .advice("mount it: pfp identifies processes by it"),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::CheckVerdict;
    use super::*;

    #[test]
    fn an_unoptimised_build_is_recognised_by_the_cost_of_a_region() {
        for (pair_ns, expected) in
            [(705.0, true), (23.1, false), (67.0, false), (f64::NAN, false), (f64::INFINITY, false)]
        {
            assert_eq!(is_unoptimised(pair_ns), expected, "{pair_ns}");
        }
    }

    #[test]
    fn a_process_of_another_pid_namespace_is_not_reported_as_running() {
        let object = Name::from_hex(b"9a469600111dbd70fe6cc3d366a010ef").expect("it is one");
        let own = pfp_shm_layout::liveness::Identity::of_this_process().pidns;
        for (pid_namespace, expected) in
            [(own, CheckVerdict::Problem), (0, CheckVerdict::Note), (1, CheckVerdict::Note)]
        {
            let facts =
                Facts { pid: 1, exe: "/usr/bin/app".into(), pid_namespace, ..Facts::default() };
            let found = not_found_any_more(
                "processes",
                &LostSegment { object, facts, bytes: 0, runs: true },
            );
            assert_eq!(found.verdict, expected, "{found:?}");
            assert_eq!(found.found.contains("runs"), pid_namespace == own, "{found:?}");
        }
    }

    #[test]
    fn a_failed_start_is_reported_with_cause_and_advice() {
        let of = |stage, errno| {
            failed("processes", &Failure { pid: 42, exe: "/usr/bin/app".into(), stage, errno })
        };
        for (errno, cause, advice) in [
            (libc::ENOSPC, "No space left", "make room in /dev/shm"),
            (libc::EMFILE, "Too many open files", "ulimit -n"),
            (libc::EACCES, "Permission denied", "must be writable"),
            (libc::ENOMEM, "Cannot allocate memory", "PFP_MEMORY_MB"),
            (libc::EINTR, "Interrupted", "restart the program"),
        ] {
            let found = of(Stage::Segment, errno);
            assert_eq!(found.verdict, CheckVerdict::Problem);
            assert!(found.found.starts_with("app [42] could not measure"), "{found:?}");
            assert!(found.found.contains(cause) && found.advice.contains(advice), "{found:?}");
        }
        assert!(of(Stage::Beacon, libc::ENOSPC).advice.contains("folder of the beacons"));
    }
}

//! The checks, in the order in which a person would look.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::beacon::Info;
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::failure::{self, Failure, Stage};
use pfp_shm_layout::find::{self, Entry};
use pfp_shm_layout::liveness::{Identity, Liveness};
use pfp_shm_layout::name::Name;
use pfp_shm_layout::segment::{OpenError, Segment};
use pfp_shm_layout::share::Share;
use pfp_shm_layout::truncation;

use super::Finding;
use crate::cli::run::inject::{self, System};
use crate::cli::run::preload;
use crate::cli::{demo, locale_has_unicode};
use crate::headline::clock_word;
use crate::snapshot::ClockKind;
use crate::variables;

/// What a segment of a middling program takes, MiB.
const SHM_LEAST_MIB: u64 = 16;
/// What one of a program with many points and threads may take, MiB.
const SHM_ENOUGH_MIB: u64 = 256;
/// The least that the screen needs.
const LEAST_SIZE: (u16, u16) = (40, 8);

/// Everything.
pub(super) fn all() -> Vec<Finding> {
    let mut findings = variables(std::env::vars_os());
    findings.extend(directories());
    findings.extend(shared_memory(Path::new("/dev/shm")));
    findings.push(share(Share::of_this_process()));
    findings.extend(processes());
    findings.extend(objects(Path::new("/dev/shm")));
    findings.extend(other_users());
    findings.extend(containers());
    findings.extend(annotations());
    findings.extend(clock());
    findings.extend(terminal());
    findings
}

fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<Finding> {
    let mut set: Vec<(String, String)> = all
        .map(|(name, value)| (name.to_string_lossy().into(), value.to_string_lossy().into()))
        .filter(|(name, _): &(String, String)| name.starts_with("PFP_"))
        .collect();
    set.sort();
    let judge = |(name, value): &(String, String)| {
        const ABOUT: &str = "variables";
        let found = format!("{name}={value}");
        let is_number = || value.parse::<u32>().is_ok_and(|number| number > 0);
        match name.as_str() {
            "PFP_DIR" if value.is_empty() => Finding::note(ABOUT, format!("{found}, as if unset")),
            "PFP_DIR" if !Path::new(value).is_absolute() => Finding::problem(ABOUT, found)
                .advice("a relative path is another folder in each program: give a whole one"),
            "PFP_DIR" => Finding::note(ABOUT, found)
                .advice("programs are found only if they were started with the same value"),
            "PFP_CLOCK" if ["rseq", "perf", "cputime", "wall"].contains(&value.as_str()) => {
                Finding::note(ABOUT, format!("{found}: no better clock than that is tried"))
            }
            "PFP_CLOCK" => Finding::problem(ABOUT, found)
                .advice("programs mind rseq, perf, cputime and wall, and ignore this"),
            "PFP_DEFAULT" if value == "off" => {
                Finding::note(ABOUT, format!("{found}: points start switched off"))
                    .advice("`e` in the viewer switches one on")
            }
            "PFP_DEFAULT" => Finding::ok(ABOUT, found),
            "PFP_POINTS" | "PFP_LANES" | "PFP_MEMORY_MB" if !is_number() => {
                Finding::problem(ABOUT, found)
                    .advice("programs want a whole number here, and ignore this")
            }
            known if variables::is_known(known) => Finding::ok(ABOUT, found),
            _ => Finding::note(ABOUT, format!("{found}: unknown to pfp"))
                .advice(format!("known are {}", variables::names().join(", "))),
        }
    };
    set.iter().map(judge).collect()
}

/// What `pfp-top run` loads into programs, and what is in the way.
fn annotations() -> Vec<Finding> {
    const ABOUT: &str = "annotations";
    let libraries = [
        ("libpfp_inject.so", "for annotated programs", inject::candidates(), "PFP_INJECT_LIBRARY"),
        ("libpfp.so", "for -finstrument-functions", preload::places(), "PFP_LIBRARY"),
    ];
    let library = |(name, what, places, variable): (&str, &str, Vec<PathBuf>, &str)| {
        let looked = inject::list(&places);
        match places.into_iter().find(|place| place.is_file()) {
            Some(path) => Finding::ok(ABOUT, format!("{name}, {what}: {}", path.display())),
            None => Finding::note(ABOUT, format!("{name}, {what}, is none of {looked}")).advice(
                format!("install both ends, see docs/installing.md, or name it with {variable}"),
            ),
        }
    };
    let own = inject::library();
    let taken = |system: System| {
        let value = std::env::var_os(system.variable()).filter(|value| !value.is_empty())?;
        let is_own = own.as_ref().is_some_and(|own| own.as_os_str() == value);
        let found = format!("{} is {}", system.variable(), value.display());
        Some(match is_own {
            true => Finding::ok(ABOUT, found),
            false => Finding::note(ABOUT, found)
                .advice("`pfp-top run` leaves it so, and sees nothing of that system: unset it"),
        })
    };
    let taken = System::DEFAULT.into_iter().filter_map(taken).collect::<Vec<_>>();
    libraries.map(library).into_iter().chain(taken).collect()
}

pub(super) fn directories() -> Vec<Finding> {
    const ABOUT: &str = "beacons";
    let mut any = false;
    let mut findings: Vec<Finding> = Directory::candidates()
        .iter()
        .map(|path| {
            let shown = path.display();
            match Directory::open(path) {
                Ok(_) => {
                    any = true;
                    let mode = fs::metadata(path).map_or(0, |meta| meta.mode() & 0o7777);
                    Finding::ok(ABOUT, format!("{shown} is this user's, mode {mode:04o}"))
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Finding::ok(ABOUT, format!("{shown} is not there"))
                }
                Err(error) => Finding::problem(ABOUT, error.to_string()).advice(
                    "remove it or mend its owner and mode, which should be 0700; where you \
                         cannot, give programs and viewer another folder: PFP_DIR=/run/mine",
                ),
            }
        })
        .collect();
    if !any {
        let found = "no program of this user has announced itself since boot";
        findings.push(
            Finding::note(ABOUT, found).advice("the first one that measures makes the folder"),
        );
    }
    findings
}

pub(super) fn shared_memory(path: &Path) -> Vec<Finding> {
    const ABOUT: &str = "memory";
    let shown = path.display();
    if !path.is_dir() {
        return vec![
            Finding::problem(ABOUT, format!("{shown} is not there"))
                .advice("mount a tmpfs on it: programs keep their figures there"),
        ];
    }
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return Vec::new() };
    // SAFETY: a NUL-terminated path that outlives the call.
    if unsafe { libc::access(name.as_ptr(), libc::W_OK | libc::X_OK) } != 0 {
        let why = io::Error::last_os_error();
        return vec![
            Finding::problem(ABOUT, format!("{shown} cannot be written: {why}"))
                .advice("it should be mode 1777"),
        ];
    }
    // SAFETY: an all-zero `statvfs` is a valid value of that plain struct.
    let mut space: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated path and a structure that we own.
    if unsafe { libc::statvfs(name.as_ptr(), &raw mut space) } != 0 {
        let why = io::Error::last_os_error();
        return vec![Finding::problem(ABOUT, format!("{shown}: {why}"))];
    }
    let mib = |blocks: u64| blocks.saturating_mul(space.f_frsize) >> 20;
    let (free, all) = (mib(space.f_bavail), mib(space.f_blocks));
    let found = format!("{shown} can be written; {free} of {all} MiB are free");
    vec![match free {
        0..SHM_LEAST_MIB => Finding::problem(ABOUT, found)
            .advice("make room (`pfp-top gc`, `df /dev/shm`), or mount it larger"),
        SHM_LEAST_MIB..SHM_ENOUGH_MIB => Finding::note(ABOUT, found).advice(
            "enough for most programs; `docker run --shm-size` or a remount makes it larger",
        ),
        _ => Finding::ok(ABOUT, found),
    }]
}

/// What a program that is started here would take at most.
fn share(share: Share) -> Finding {
    const ABOUT: &str = "memory";
    const ENOUGH: u64 = 16 << 20;
    let mib = |bytes: u64| match bytes {
        ..0x100_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    };
    let most = format!("a program started here takes at most {}", mib(share.bytes));
    let found = match share.of {
        None => most + "; no limit asks for less",
        Some((limit, whose)) => format!("{most}, by the limit of {}: {}", whose, mib(limit)),
    };
    match share.bytes {
        ENOUGH.. => Finding::ok(ABOUT, found),
        _ => Finding::note(ABOUT, found)
            .advice("with many threads or points not all is measured: PFP_MEMORY_MB asks for more"),
    }
}

fn processes() -> Vec<Finding> {
    const ABOUT: &str = "processes";
    // Folders that cannot be read have been told of.
    let (found, _) = find::find_everywhere();
    let mut findings = Vec::new();
    let here = Identity::of_this_process();
    for place in found {
        if place.truncated {
            let shown = place.looked_in.display();
            findings.push(
                Finding::problem(ABOUT, format!("{shown} has more files than are looked at"))
                    .advice("`pfp-top gc` removes what ended programs left"),
            );
        }
        for (path, why) in &place.unreadable {
            findings.push(
                Finding::problem(ABOUT, format!("{}: {why}", path.display()))
                    .advice("of another version of pfp, or damaged: then `pfp-top gc` removes it"),
            );
        }
        findings.extend(place.entries.iter().map(|entry| process(ABOUT, entry, &here)));
        findings.extend(several_copies(ABOUT, &place.entries));
        let failures = Directory::open(&place.looked_in).and_then(|dir| failure::find(&dir));
        findings.extend(failures.unwrap_or_default().iter().map(|note| failed(ABOUT, note)));
    }
    if findings.is_empty() {
        findings.push(
            Finding::note(ABOUT, "none is instrumented and runs")
                .advice("`pfp-top demo` shows one; `pfp-top run -- CMD` starts one"),
        );
    }
    findings
}

/// What has the name of a segment, and is none: a program that comes to that name
/// measures nothing. And segments of this user's to which nothing leads from here.
fn objects(shm: &Path) -> Vec<Finding> {
    const ABOUT: &str = "segments";
    // SAFETY: geteuid has no preconditions and cannot fail.
    let own = unsafe { libc::geteuid() };
    let (found, _) = find::find_everywhere();
    let known: HashSet<Name> =
        found.iter().flat_map(|place| &place.entries).map(|entry| entry.info.object).collect();
    let (mut findings, mut lost, mut bytes) = (Vec::new(), 0, 0);
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
                "a file with a second name"
            } else if kind.is_dir() {
                "a folder"
            } else {
                "neither a file nor a folder"
            };
            let found = format!("{shown}: expected a segment, found {what} of uid {}", meta.uid());
            findings
                .push(Finding::problem(ABOUT, found).advice(
                    "somebody has put it there: remove it; no program follows or opens it",
                ));
        } else if meta.uid() == own && !known.contains(&name) {
            lost += 1;
            bytes += meta.blocks() * 512;
        }
    }
    if lost > 0 {
        let found =
            format!("{lost} in {}, {} KiB, without a beacon here", shm.display(), bytes >> 10);
        findings.push(Finding::note(ABOUT, found).advice(
            "of programs that look elsewhere for the folder of beacons, such as with PFP_DIR or \
             in a container; of none that runs, remove them by hand",
        ));
    }
    findings
}

/// A program whose last start came to nothing, why, and what to do.
pub(super) fn failed(about: &'static str, note: &Failure) -> Finding {
    let exe = note.exe.file_name().unwrap_or(note.exe.as_os_str()).to_string_lossy();
    let what = match note.stage {
        Stage::Segment => "could not measure: no segment in /dev/shm",
        Stage::Process => "could not measure: no private memory",
        Stage::Beacon => "measures and cannot be found: no beacon",
    };
    let why = match note.errno {
        0 => String::new(),
        errno => format!(" ({})", io::Error::from_raw_os_error(errno)),
    };
    Finding::problem(about, format!("{exe} [{}] {what}{why}", note.pid))
        .advice(note.stage.advice(note.errno))
}

/// Processes that have several segments: the copies of pfp in them share one if they can.
fn several_copies(about: &'static str, entries: &[Entry]) -> Vec<Finding> {
    let mut copies: BTreeMap<(u64, u32, u64), Vec<&Entry>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.state == Liveness::Alive) {
        let process = &entry.info.process;
        copies.entry((process.pidns, process.pid, process.start)).or_default().push(entry);
    }
    let several = copies.values().filter(|entries| entries.len() > 1).map(|entries| {
        let info = &entries[0].info;
        let exe = info.exe.file_name().unwrap_or(info.exe.as_os_str()).to_string_lossy();
        let (pid, n) = (info.process.pid, entries.len());
        let found =
            format!("{exe} [{pid}] has {n} segments, of copies of pfp that do not fit together");
        Finding::note(about, found).advice(
            "the program and its libraries were linked with different versions of pfp: link all \
             with the same one, or choose a segment with -p and its number in `pfp-top list`",
        )
    });
    several.collect()
}

pub(super) fn process(about: &'static str, entry: &Entry, here: &Identity) -> Finding {
    let info = &entry.info;
    let exe = info.exe.file_name().unwrap_or(info.exe.as_os_str()).to_string_lossy();
    let name = if info.name.is_empty() { &exe } else { info.name.as_str() };
    let who = format!("{name} [{}]", info.process.pid);
    match (entry.state, entry.object_bytes) {
        (Liveness::Dead | Liveness::Gone, Some(bytes)) => {
            let found = format!("{who} has crashed or was killed; {} KiB are kept", bytes >> 10);
            Finding::note(about, found)
                .advice("`pfp-top -p PID` shows its last figures; `pfp-top gc` removes them")
        }
        (Liveness::Dead | Liveness::Gone, None) => {
            Finding::note(about, format!("{who} is gone and so are its figures"))
                .advice("`pfp-top gc` removes the beacon")
        }
        (Liveness::Alive, None) => Finding::note(
            about,
            format!("{who} runs, but its segment is not in /dev/shm"),
        )
        .advice(
            "it is just starting or ending, or has another /dev/shm: share that of its container",
        ),
        (Liveness::Alive, Some(bytes)) => match open(info) {
            Ok(segment) => {
                let mut found = format!("{who} runs and can be watched; {} KiB", bytes >> 10);
                if info.process.pidns != here.pidns {
                    found.push_str("; its id counts in another pid namespace");
                }
                of_clock(about, &segment, found)
            }
            Err(error) => Finding::problem(about, format!("{who} cannot be read: {error}"))
                .advice("use the pfp-top of the version that the program was built with"),
        },
    }
}

/// Opens a segment; that it is cut short meanwhile is no reason to die.
fn open(info: &Info) -> Result<Segment, OpenError> {
    truncation::survive()?;
    Ok(Segment::open(&info.object)?.0)
}

/// A process that can be watched: is its clock one to trust?
fn of_clock(about: &'static str, segment: &Segment, mut found: String) -> Finding {
    let ledger = segment.ledger();
    let astray: u64 = (0..=segment.overflow_lane())
        .take(usize::try_from(ledger.lanes_used.load(Relaxed)).unwrap_or(usize::MAX))
        .filter_map(|lane| Some(segment.lane(lane)?.tally.anomalies.load(Relaxed)))
        .fold(0, u64::saturating_add);
    let rate = ledger.ticks_per_1000_s.load(Relaxed) as f64 / 1000.0;
    let pair_ns = ledger.overhead_pair.load(Relaxed) as f64 / rate * 1e9;
    if ledger.debug.load(Relaxed) == 1 && is_unoptimised(pair_ns) {
        found.push_str(&format!(
            "; pfp is built without optimisation: a region costs {pair_ns:.0} ns"
        ));
        return Finding::note(about, found).advice(OPTIMISE);
    }
    let replaced = ledger.system_clock.load(Relaxed) == 1;
    if astray > 0 {
        found.push_str(&format!("; its tick counter went astray {astray} times"));
    }
    if replaced {
        found.push_str("; the system's clock is read in place of the tick counter");
    }
    if astray == 0 && !replaced {
        return Finding::ok(about, found);
    }
    Finding::note(about, found).advice(
        "the kernel's log tells of an unstable clock source; its on-CPU time is right all the same",
    )
}

const OPTIMISE: &str = "set opt-level = 3 for pfp-probe and pfp-shm-layout in \
     [profile.dev.package.NAME] of the program's Cargo.toml: its other code stays as it is";

/// Whether a probe with debug assertions costs what it does without optimisation: some 700 ns
/// for a begin and end. With the advice taken it is 20 to 60, and keeps its assertions.
fn is_unoptimised(pair_ns: f64) -> bool {
    pair_ns.is_finite() && pair_ns > 200.0
}

/// Segments of others are seen by their owners and root alone: that is worth knowing
/// before one looks for them for an hour.
fn other_users() -> Vec<Finding> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let own = unsafe { libc::geteuid() };
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
        Finding::note("other users", found).advice("`sudo pfp-top`")
    };
    temporary.chain(runtime).filter_map(theirs).map(finding).collect()
}

fn containers() -> Vec<Finding> {
    const ABOUT: &str = "container";
    let mut findings = Vec::new();
    let marks = ["/.dockerenv", "/run/.containerenv"];
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let is_nested = ids.split_whitespace().count() > 1;
    if let Some(mark) = marks.iter().find(|mark| Path::new(mark).exists()) {
        findings.push(Finding::note(ABOUT, format!("this is a container ({mark})")).advice(
            "programs outside are seen only if /dev/shm and the folder of beacons are shared",
        ));
    } else if is_nested {
        findings.push(Finding::note(ABOUT, "this is a pid namespace of its own").advice(
            "programs outside are seen only if /dev/shm and the folder of beacons are shared",
        ));
    }
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    if let (Some(own), Some(first)) = (namespace("self"), namespace("1"))
        && own != first
    {
        findings.push(Finding::note(
            ABOUT,
            "the file systems seen here are not those of process 1 (a mount namespace)",
        ));
    }
    if !Path::new("/proc/self/stat").exists() {
        findings.push(
            Finding::problem(ABOUT, "/proc is not mounted")
                .advice("mount it: processes are told apart by it"),
        );
    }
    findings
}

fn clock() -> Vec<Finding> {
    const ABOUT: &str = "clock";
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".into());
    let libc = libc_version().map_or(String::new(), |version| format!(", glibc {version}"));
    let paranoid = read("/proc/sys/kernel/perf_event_paranoid")
        .map_or_else(|_| "no perf events".into(), |level| format!("perf_event_paranoid {level}"));
    let facts = format!("Linux {kernel}{libc}, {paranoid}");
    let mut findings = vec![Finding::ok(ABOUT, facts)];
    findings.push(match demo::try_out() {
        Ok(kind) => rung(kind),
        Err(error) => Finding::problem(ABOUT, format!("a program tried out here: {error:#}"))
            .advice("whatever is wrong above keeps it from measuring"),
    });
    findings
}

/// What the clock that a program came to use here means for its figures.
fn rung(kind: ClockKind) -> Finding {
    let about = "clock";
    let found =
        |means: &str| format!("a program tried out here measures by {}: {means}", clock_word(kind));
    match kind {
        ClockKind::Rseq | ClockKind::Perf => {
            Finding::ok(about, found("time off the CPU is taken out, at the price of a load"))
        }
        ClockKind::Cputime => Finding::note(
            about,
            found("time off the CPU is taken out, at the price of two system calls a region"),
        )
        .advice(
            "rseq wants glibc 2.35 or newer (and GLIBC_TUNABLES to leave it on); perf wants \
             perf_event_paranoid at 2 or less, and a container that allows perf_event_open",
        ),
        ClockKind::Wall => {
            Finding::problem(about, found("no figure has time off the CPU taken out"))
                .advice("is PFP_CLOCK set to wall? Nothing else chooses it on Linux")
        }
    }
}

#[cfg(target_env = "gnu")]
fn libc_version() -> Option<String> {
    // SAFETY: the function returns a constant, NUL-terminated text.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_str().ok().map(str::to_owned)
}

#[cfg(not(target_env = "gnu"))]
fn libc_version() -> Option<String> {
    None
}

fn terminal() -> Vec<Finding> {
    const ABOUT: &str = "terminal";
    if !io::stdout().is_terminal() {
        let found = "standard output is no terminal: the table is printed once";
        return vec![Finding::note(ABOUT, found)];
    }
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut findings = Vec::new();
    findings.push(match set("TERM") {
        None => Finding::problem(ABOUT, "TERM is not set")
            .advice("set it to what the terminal is, such as xterm-256color"),
        Some(term) if term == "dumb" => Finding::problem(ABOUT, "TERM=dumb has no screen")
            .advice("use another terminal, or --once"),
        Some(term) => {
            let colours = set("COLORTERM").map_or(String::new(), |c| format!(", COLORTERM={c}"));
            let inside = if set("TMUX").is_some() { ", in tmux" } else { "" };
            Finding::ok(ABOUT, format!("TERM={term}{colours}{inside}"))
        }
    });
    if set("NO_COLOR").is_some() {
        findings.push(
            Finding::note(ABOUT, "NO_COLOR is set: the screen has no colours")
                .advice("--color always overrules it"),
        );
    }
    findings.push(match crossterm::terminal::size() {
        Ok((width, height)) if width < LEAST_SIZE.0 || height < LEAST_SIZE.1 => {
            Finding::problem(ABOUT, format!("{width} x {height} is small"))
                .advice(format!("the screen needs {} x {}", LEAST_SIZE.0, LEAST_SIZE.1))
        }
        Ok((width, height)) => Finding::ok(ABOUT, format!("{width} x {height}")),
        Err(error) => Finding::problem(ABOUT, format!("its size is unknown: {error}")),
    });
    findings.push(if locale_has_unicode() {
        Finding::ok(ABOUT, "the locale is of the UTF-8 kind, or none is set")
    } else {
        Finding::note(ABOUT, "the locale is not of the UTF-8 kind: ASCII is drawn")
            .advice("LC_ALL=C.UTF-8 draws finer, where the terminal can")
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn variables_are_judged_by_what_programs_make_of_them() {
        use Verdict::{Note, Ok, Problem};
        for (name, value, verdict) in [
            ("PFP_DIR", "/run/pfp", Note),
            ("PFP_DIR", "pfp", Problem),
            ("PFP_CLOCK", "cputime", Note),
            ("PFP_CLOCK", "best", Problem),
            ("PFP_DEFAULT", "on", Ok),
            ("PFP_DEFAULT", "off", Note),
            ("PFP_LANES", "8", Ok),
            ("PFP_LANES", "many", Problem),
            ("PFP_LANE", "8", Note),
            ("PFP_TOP_THEME", "dark", Ok),
            ("PFP_CUDA_LIBRARY", "/usr/lib/libcuda.so", Ok),
            ("PFP_SNAPSHOT", "/tmp/last.json", Ok),
        ] {
            let found = variables([(name.into(), value.into())].into_iter());
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].verdict, verdict, "{name}={value}");
        }
        assert_eq!(variables([("HOME".into(), "/".into())].into_iter()), []);
    }

    #[test]
    fn a_build_without_optimisation_is_known_by_what_a_region_costs() {
        for (pair_ns, expected) in
            [(705.0, true), (23.1, false), (67.0, false), (f64::NAN, false), (f64::INFINITY, false)]
        {
            assert_eq!(is_unoptimised(pair_ns), expected, "{pair_ns}");
        }
    }

    #[test]
    fn shared_memory_that_is_not_there_is_a_problem() {
        let found = shared_memory(Path::new("/no/such/place"));
        assert_eq!(found[0].verdict, Verdict::Problem);
        let here = shared_memory(&std::env::temp_dir());
        assert!(here[0].found.contains("MiB are free"), "{here:?}");
    }

    #[test]
    fn the_limit_and_the_share_of_it_are_told() {
        use pfp_shm_layout::share::Limiter;
        let told = |bytes, of| share(Share { bytes, of });
        let group = told(4 << 20, Some((64 << 20, Limiter::ControlGroup)));
        assert_eq!(group.verdict, Verdict::Note);
        assert_eq!(
            group.found,
            "a program started here takes at most 4096 KiB, by the limit of the control group's \
             memory: 64 MiB"
        );
        assert!(group.advice.contains("PFP_MEMORY_MB"), "{group:?}");
        let free = told(250 << 20, None);
        assert_eq!((free.verdict, free.found.contains("250 MiB")), (Verdict::Ok, true), "{free:?}");
    }

    #[test]
    fn a_start_that_failed_is_told_with_its_cause_and_what_to_do() {
        let of = |stage, errno| {
            failed("processes", &Failure { pid: 42, exe: "/usr/bin/app".into(), stage, errno })
        };
        for (errno, cause, advice) in [
            (libc::ENOSPC, "No space left", "make room in /dev/shm"),
            (libc::EMFILE, "Too many open files", "ulimit -n"),
            (libc::EACCES, "Permission denied", "must be writable"),
            (libc::ENOMEM, "Cannot allocate memory", "PFP_MEMORY_MB"),
            (libc::EINTR, "Interrupted", "start it anew"),
        ] {
            let found = of(Stage::Segment, errno);
            assert_eq!(found.verdict, Verdict::Problem);
            assert!(found.found.starts_with("app [42] could not measure"), "{found:?}");
            assert!(found.found.contains(cause) && found.advice.contains(advice), "{found:?}");
        }
        assert!(of(Stage::Beacon, libc::ENOSPC).advice.contains("folder of the beacons"));
    }

    #[test]
    fn a_lower_clock_is_a_note_and_none_a_problem() {
        assert_eq!(rung(ClockKind::Rseq).verdict, Verdict::Ok);
        assert_eq!(rung(ClockKind::Cputime).verdict, Verdict::Note);
        assert_eq!(rung(ClockKind::Wall).verdict, Verdict::Problem);
    }
}

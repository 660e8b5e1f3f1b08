//! The checks, in the order in which a person would make them.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::share::Share;

use super::CheckResult;
use super::processes::{containers, objects, other_users, processes};
use crate::cli::demo;
use crate::cli::options::locale_has_unicode;
use crate::cli::run::allocs;
use crate::cli::run::inject::{self, System};
use crate::cli::run::{places, preload};
use crate::variables;
use pfp_model::headline::clock_word;
use pfp_read::snapshot::ClockKind;

/// The size of an average program's segment, MiB.
const SHM_LEAST_MIB: u64 = 16;
/// The size of a segment with many points and threads, MiB.
const SHM_ENOUGH_MIB: u64 = 256;
/// Minimum size of the screen, in columns and rows.
const MIN_SIZE: (u16, u16) = (40, 8);

/// Runs all checks.
pub(super) fn all() -> Vec<CheckResult> {
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

fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<CheckResult> {
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
            "PFP_DIR" if value.is_empty() => {
                CheckResult::note(ABOUT, format!("{found}, as if unset"))
            }
            "PFP_DIR" if !Path::new(value).is_absolute() => CheckResult::problem(ABOUT, found)
                .advice("a relative path is another folder in each program: give an absolute one"),
            "PFP_DIR" => CheckResult::note(ABOUT, found)
                .advice("programs are found only if they were started with the same value"),
            "PFP_CLOCK" if ["rseq", "perf", "cputime", "wall"].contains(&value.as_str()) => {
                CheckResult::note(ABOUT, format!("{found}: no better clock than that is tried"))
            }
            "PFP_CLOCK" => CheckResult::problem(ABOUT, found)
                .advice("programs know rseq, perf, cputime and wall, and ignore this value"),
            "PFP_DEFAULT" if value == "off" => {
                CheckResult::note(ABOUT, format!("{found}: points start switched off"))
                    .advice("`e` in the viewer switches one on")
            }
            "PFP_DEFAULT" => CheckResult::ok(ABOUT, found),
            "PFP_POINTS" | "PFP_LANES" | "PFP_MEMORY_MB" if !is_number() => {
                CheckResult::problem(ABOUT, found)
                    .advice("programs expect a whole number, and ignore this value")
            }
            known if variables::is_known(known) => CheckResult::ok(ABOUT, found),
            _ => CheckResult::note(ABOUT, format!("{found}: unknown to pfp"))
                .advice(format!("known are {}", variables::names().join(", "))),
        }
    };
    set.iter().map(judge).collect()
}

/// Checks of the libraries that `pfp-top run` loads into programs.
fn annotations() -> Vec<CheckResult> {
    const ABOUT: &str = "libraries";
    let libraries = [
        ("libpfp_inject.so, for annotated programs", inject::find(), "PFP_INJECT_LIBRARY"),
        ("libpfp_alloc.so, for run --alloc", allocs::find(), "PFP_ALLOC_LIBRARY"),
        ("libpfp.so, for -finstrument-functions", preload::find(), "PFP_LIBRARY"),
    ];
    let library = |(what, found, variable): (&str, Result<PathBuf, String>, &str)| match found {
        Ok(path) => CheckResult::ok(ABOUT, format!("{what}: {}", path.display())),
        Err(places) => CheckResult::note(ABOUT, format!("{what}: not found (searched: {places})"))
            .advice(format!(
                "install both ends, see docs/installing.md, or name it with {variable}"
            )),
    };
    let own = inject::find().map(|library| places::resolved(&library));
    let taken = |system: System| {
        let value = std::env::var_os(system.variable()).filter(|value| !value.is_empty())?;
        let is_own = own.as_ref().is_ok_and(|own| own.as_os_str() == value);
        let found = format!("{} is {}", system.variable(), value.display());
        Some(match is_own {
            true => CheckResult::ok(ABOUT, found),
            false => CheckResult::note(ABOUT, found).advice(
                "`pfp-top run` keeps this value and does not measure that system: unset it",
            ),
        })
    };
    let taken = System::DEFAULT.into_iter().filter_map(taken).collect::<Vec<_>>();
    libraries.map(library).into_iter().chain(taken).collect()
}

pub(super) fn directories() -> Vec<CheckResult> {
    const ABOUT: &str = "beacons";
    let mut any = false;
    let mut findings: Vec<CheckResult> = Directory::candidates()
        .iter()
        .map(|path| {
            let shown = path.display();
            match Directory::open(path) {
                Ok(_) => {
                    any = true;
                    let mode = fs::metadata(path).map_or(0, |meta| meta.mode() & 0o7777);
                    CheckResult::ok(ABOUT, format!("{shown} is this user's, mode {mode:04o}"))
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    CheckResult::ok(ABOUT, format!("{shown} is not there"))
                }
                Err(error) => CheckResult::problem(ABOUT, error.to_string()).advice(
                    "remove it, or correct its owner and mode (0700); if you cannot, give programs \
                     and viewer another folder: PFP_DIR=/run/mine",
                ),
            }
        })
        .collect();
    if !any {
        let found = "no program of this user has announced itself since boot";
        findings.push(
            CheckResult::note(ABOUT, found).advice("the first one that measures makes the folder"),
        );
    }
    findings
}

pub(super) fn shared_memory(path: &Path) -> Vec<CheckResult> {
    const ABOUT: &str = "memory";
    let shown = path.display();
    if !path.is_dir() {
        return vec![
            CheckResult::problem(ABOUT, format!("{shown} is not there"))
                .advice("mount a tmpfs on it: programs keep their figures there"),
        ];
    }
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return Vec::new() };
    // SAFETY: `name` is a NUL-terminated path that outlives the call.
    if unsafe { libc::access(name.as_ptr(), libc::W_OK | libc::X_OK) } != 0 {
        let why = io::Error::last_os_error();
        return vec![
            CheckResult::problem(ABOUT, format!("{shown} cannot be written: {why}"))
                .advice("it should be mode 1777"),
        ];
    }
    // SAFETY: a `statvfs` is plain numbers; all zeros is a valid value.
    let mut space: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is NUL-terminated and `space` is valid for writes; both outlive the call.
    if unsafe { libc::statvfs(name.as_ptr(), &raw mut space) } != 0 {
        let why = io::Error::last_os_error();
        return vec![CheckResult::problem(ABOUT, format!("{shown}: {why}"))];
    }
    let mib = |blocks: u64| blocks.saturating_mul(space.f_frsize) >> 20;
    let (free, all) = (mib(space.f_bavail), mib(space.f_blocks));
    let found = format!("{shown} can be written; {free} of {all} MiB are free");
    let room = match free {
        0..SHM_LEAST_MIB => CheckResult::problem(ABOUT, found)
            .advice("make room (`pfp-top gc`, `df /dev/shm`), or mount it larger"),
        SHM_LEAST_MIB..SHM_ENOUGH_MIB => CheckResult::note(ABOUT, found).advice(
            "enough for most programs; `docker run --shm-size` or a remount makes it larger",
        ),
        _ => CheckResult::ok(ABOUT, found),
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let policy = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let huge = huge_pages(&shown.to_string(), &read("/proc/self/mounts"), &policy);
    let huge = huge.map(|why| {
        let found = format!("{shown} is made of huge pages, by {why}: a small program's segment");
        CheckResult::note(ABOUT, found + " takes some 4 MiB in place of 116 KiB")
            .advice(format!("`mount -o remount,huge=never {shown}` gives new segments small pages"))
    });
    std::iter::once(room).chain(huge).collect()
}

/// The setting that gives new files on this tmpfs huge pages, if there is one. The kernel's
/// policies `deny` and `force` apply to every tmpfs; with other policies, the mount's option
/// decides.
fn huge_pages(place: &str, mounts: &str, policy: &str) -> Option<String> {
    let policy = policy.split_once('[')?.1.split_once(']')?.0;
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    // A later mount at the same path hides the earlier ones.
    let options = mounts.rfind(|fields| fields.get(1) == Some(&place))?.get(3).copied()?;
    match policy {
        "deny" => None,
        "force" => Some("the kernel's shmem_enabled=force".into()),
        _ => {
            let of_mount = |it: &&str| ["huge=always", "huge=within_size"].contains(it);
            options.split(',').find(of_mount).map(|option| format!("its mount option {option}"))
        }
    }
}

/// Reports the maximum memory that a program started here would use, and the limit from which this
/// maximum follows.
fn share(share: Share) -> CheckResult {
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
        ENOUGH.. => CheckResult::ok(ABOUT, found),
        _ => CheckResult::note(ABOUT, found)
            .advice("with many threads or points not all is measured: PFP_MEMORY_MB asks for more"),
    }
}

fn clock() -> Vec<CheckResult> {
    const ABOUT: &str = "clock";
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".into());
    let libc = libc_version().map_or(String::new(), |version| format!(", glibc {version}"));
    let paranoid = read("/proc/sys/kernel/perf_event_paranoid")
        .map_or_else(|_| "no perf events".into(), |level| format!("perf_event_paranoid {level}"));
    let facts = format!("Linux {kernel}{libc}, {paranoid}");
    let mut findings = vec![CheckResult::ok(ABOUT, facts)];
    findings.push(match demo::try_out() {
        Ok(kind) => clock_source(kind),
        Err(error) => CheckResult::problem(ABOUT, format!("a program tried out here: {error:#}"))
            .advice("whatever is wrong above keeps it from measuring"),
    });
    findings
}

/// Reports the clock source of the program that was tried out, and its effect on the figures.
fn clock_source(kind: ClockKind) -> CheckResult {
    let about = "clock";
    let found =
        |means: &str| format!("a program tried out here measures by {}: {means}", clock_word(kind));
    match kind {
        ClockKind::Rseq | ClockKind::Perf => CheckResult::ok(
            about,
            found("time off the CPU is excluded, at the cost of one load per region"),
        ),
        ClockKind::Cputime => CheckResult::note(
            about,
            found("time off the CPU is excluded, at the cost of two system calls per region"),
        )
        .advice(
            "rseq needs glibc 2.35 or newer, not switched off by GLIBC_TUNABLES; perf needs \
             perf_event_paranoid at 2 or less, and a container that allows perf_event_open",
        ),
        ClockKind::Wall => {
            CheckResult::problem(about, found("all figures include time off the CPU"))
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

fn terminal() -> Vec<CheckResult> {
    const ABOUT: &str = "terminal";
    if !io::stdout().is_terminal() {
        let found = "standard output is no terminal: the table is printed once";
        return vec![CheckResult::note(ABOUT, found)];
    }
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut findings = Vec::new();
    findings.push(match set("TERM") {
        None => CheckResult::problem(ABOUT, "TERM is not set")
            .advice("set it to what the terminal is, such as xterm-256color"),
        Some(term) if term == "dumb" => CheckResult::problem(ABOUT, "TERM=dumb has no screen")
            .advice("use another terminal, or --once"),
        Some(term) => {
            let colours = set("COLORTERM").map_or(String::new(), |c| format!(", COLORTERM={c}"));
            let inside = if set("TMUX").is_some() { ", in tmux" } else { "" };
            CheckResult::ok(ABOUT, format!("TERM={term}{colours}{inside}"))
        }
    });
    if set("NO_COLOR").is_some() {
        findings.push(
            CheckResult::note(ABOUT, "NO_COLOR is set: the screen has no colours")
                .advice("--color always overrules it"),
        );
    }
    findings.push(match crossterm::terminal::size() {
        Ok((width, height)) if width < MIN_SIZE.0 || height < MIN_SIZE.1 => {
            CheckResult::problem(ABOUT, format!("{width} x {height} is small"))
                .advice(format!("the screen needs {} x {}", MIN_SIZE.0, MIN_SIZE.1))
        }
        Ok((width, height)) => CheckResult::ok(ABOUT, format!("{width} x {height}")),
        Err(error) => CheckResult::problem(ABOUT, format!("its size is unknown: {error}")),
    });
    findings.push(if locale_has_unicode() {
        CheckResult::ok(ABOUT, "the locale uses UTF-8, or none is set")
    } else {
        CheckResult::note(ABOUT, "the locale does not use UTF-8: the screen is drawn in ASCII")
            .advice("set LC_ALL=C.UTF-8 for finer drawing, if the terminal supports it")
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::super::CheckVerdict;
    use super::*;

    #[test]
    fn variables_are_checked_as_programs_parse_them() {
        use CheckVerdict::{Note, Ok, Problem};
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
    fn missing_shared_memory_is_a_problem() {
        let found = shared_memory(Path::new("/no/such/place"));
        assert_eq!(found[0].verdict, CheckVerdict::Problem);
        let here = shared_memory(&std::env::temp_dir());
        assert!(here[0].found.contains("MiB are free"), "{here:?}");
    }

    #[test]
    fn huge_pages_are_reported_if_new_files_get_them() {
        let mounts = "tmpfs /dev/shm tmpfs rw,nosuid 0 0\n\
                      tmpfs /dev/shm tmpfs rw,size=64k,huge=always 0 0\n\
                      tmpfs /tmp tmpfs rw 0 0\n";
        let policy = |chosen: &str| {
            let all = "always within_size advise never deny force";
            all.replace(chosen, &format!("[{chosen}]"))
        };
        let by = |place: &str, chosen: &str| huge_pages(place, mounts, &policy(chosen));
        assert_eq!(by("/dev/shm", "never").as_deref(), Some("its mount option huge=always"));
        assert_eq!(by("/dev/shm", "deny"), None);
        assert_eq!(by("/tmp", "always"), None, "that is for memory without a mount");
        assert_eq!(by("/tmp", "force").as_deref(), Some("the kernel's shmem_enabled=force"));
        assert_eq!(huge_pages("/dev/shm", mounts, ""), None, "a kernel without them");
    }

    #[test]
    fn the_memory_limit_and_the_share_of_it_are_reported() {
        use pfp_shm_layout::share::Limiter;
        let finding = |bytes, of| share(Share { bytes, of });
        let group = finding(4 << 20, Some((64 << 20, Limiter::ControlGroup)));
        assert_eq!(group.verdict, CheckVerdict::Note);
        assert_eq!(
            group.found,
            "a program started here takes at most 4096 KiB, by the limit of the control group's \
             memory: 64 MiB"
        );
        assert!(group.advice.contains("PFP_MEMORY_MB"), "{group:?}");
        let free = finding(250 << 20, None);
        assert_eq!(
            (free.verdict, free.found.contains("250 MiB")),
            (CheckVerdict::Ok, true),
            "{free:?}"
        );
    }

    #[test]
    fn a_weaker_clock_is_a_note_and_the_wall_clock_a_problem() {
        assert_eq!(clock_source(ClockKind::Rseq).verdict, CheckVerdict::Ok);
        assert_eq!(clock_source(ClockKind::Cputime).verdict, CheckVerdict::Note);
        assert_eq!(clock_source(ClockKind::Wall).verdict, CheckVerdict::Problem);
    }
}

//! `pfp-top doctor PID`: finds the step at which watching a process fails.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::failure;
use pfp_shm_layout::find;
use pfp_shm_layout::liveness::{Identity, is_zombie};
use pfp_shm_layout::name::Name;
use pfp_shm_layout::segment::Segment;

use super::checks::{directories, shared_memory};
use super::processes::{failed, not_found_any_more, process};
use super::{CheckResult, CheckVerdict};
use pfp_read::source::{self, LostSegment};
use pfp_remote as remote;
use pfp_remote::Whereabouts;

const ABOUT: &str = "process";
/// A text that every program built with pfp contains.
const SIGN: &[u8] = b"pfp-beacon ";

/// Checks step by step, up to the first failure. To read another user's folders, this process
/// becomes that user.
pub(super) fn all(pid: u32) -> Vec<CheckResult> {
    if let Some(findings) = listed(pid) {
        return findings;
    }
    let there = match remote::whereabouts(pid) {
        Ok(there) => there,
        Err(_) if is_zombie(pid) => {
            let found =
                format!("{pid} is a zombie: it has ended, and its parent has not reaped it");
            let advice = "`pfp-top list` shows what can be watched";
            return vec![CheckResult::problem(ABOUT, found).advice(advice)];
        }
        Err(why) => {
            let finding = CheckResult::problem(ABOUT, why.to_string());
            return vec![match Path::new(&format!("/proc/{pid}")).exists() {
                true => finding.advice(format!("`sudo pfp-top doctor {pid}`")),
                false => finding.advice("`pfp-top list` shows what can be watched"),
            }];
        }
    };
    let Whereabouts { room, inside, segments, variables } = there;
    let is_instrumented = !segments.is_empty();
    let mut who = format!("{pid} runs");
    if let Some(room) = &room {
        who += &format!(" as another user or in a container: {room}");
    }
    if inside != pid {
        who += &format!(", with the id {inside} there");
    }
    let has_sign_itself =
        is_instrumented || File::open(format!("/proc/{pid}/exe")).is_ok_and(has_sign);
    let libraries = libraries_of(pid);
    let mut findings = vec![CheckResult::ok(ABOUT, who)];
    findings.extend(variables.iter().filter_map(|(name, value)| {
        let value = value.as_ref()?.to_string_lossy();
        let is_ours = std::env::var_os(name).is_some_and(|own| own.to_string_lossy() == value);
        (*name == "PFP_DIR" && !is_ours && room.is_none()).then(|| {
            CheckResult::problem(
                ABOUT,
                format!("it was started with {name}={value}, but this pfp-top was not"),
            )
            .advice(format!("{name}='{value}' pfp-top -p {pid}"))
        })
    }));
    if room.is_some()
        && let Err(error) = remote::enter(pid)
    {
        findings.extend(has_sign_itself.then(|| instrumented(is_instrumented, true)));
        let finding = CheckResult::problem("room", format!("{error:#}"));
        findings.push(finding.advice(format!("`sudo pfp-top doctor {pid}`")));
        return findings;
    }
    // `enter` has given this process the rights and the root folder of the program, so the paths of
    // the program's libraries lead to the files that the program has loaded.
    let has_sign_inside = || libraries.iter().filter_map(|path| open(path)).any(has_sign);
    let is_built_with_pfp = has_sign_itself || has_sign_inside();
    findings.insert(1, instrumented(is_instrumented, is_built_with_pfp));
    for (name, value) in variables {
        // SAFETY: `set_var` needs a single-threaded process, and this process has started no
        // thread.
        unsafe {
            match value {
                Some(value) => std::env::set_var(name, value),
                None => std::env::remove_var(name),
            }
        }
    }
    findings.extend(directories());
    findings.extend(shared_memory(Path::new("/dev/shm")));
    findings.extend(segment_findings(inside, &segments));
    let is_wrong = findings.iter().any(|finding| finding.verdict == CheckVerdict::Problem);
    let is_found = findings.iter().any(|finding| finding.about == "segment");
    if is_instrumented && !is_found && !is_wrong {
        findings.push(why_not_found(pid, &segments));
    }
    findings
}

/// The findings for a process that `list` shows. Its files in `/proc` are not read, since the
/// kernel may refuse that, and its environment does not matter.
fn listed(pid: u32) -> Option<Vec<CheckResult>> {
    let found = source::discover().ok()?.candidates;
    let own: Vec<_> = found.iter().filter(|it| it.visible_pid() == pid).collect();
    let runs = own.iter().any(|it| it.runs());
    let is_another = !runs && Path::new(&format!("/proc/{pid}")).exists();
    if own.is_empty() || is_another {
        return None;
    }
    let mut findings = Vec::new();
    if runs {
        findings = vec![CheckResult::ok(ABOUT, format!("{pid} runs")), instrumented(true, true)];
        findings.extend(directories());
        findings.extend(shared_memory(Path::new("/dev/shm")));
    }
    let segments: Vec<_> = own.into_iter().map(|it| it.segment_id.clone()).collect();
    findings.extend(segment_findings(pid, &segments));
    Some(findings)
}

/// Why viewers cannot find the segments of a running process.
fn why_not_found(pid: u32, segments: &[String]) -> CheckResult {
    const ABOUT: &str = "segment";
    let objects: Vec<_> = segments.iter().filter_map(|id| Name::from_hex(id.as_bytes())).collect();
    if let Some(lost) = objects.iter().find_map(|object| LostSegment::of(*object)) {
        return not_found_any_more(ABOUT, &lost);
    }
    let is_there = |object: &&Name| Path::new(&format!("/dev/shm{object}")).exists();
    let Some(object) = objects.iter().find(is_there) else {
        return CheckResult::problem(ABOUT, "its segment is not in /dev/shm here").advice(
            "/dev/shm was emptied: start the program again; or it has another one, such as that \
             of its container: share it",
        );
    };
    match Segment::open(object) {
        Ok((_, facts)) if !facts.folder.is_empty() => {
            let folder = facts.folder;
            CheckResult::problem(
                ABOUT,
                format!("its beacon is in {folder}, and this looks elsewhere"),
            )
            .advice(format!("PFP_DIR='{folder}' pfp-top -p {pid}"))
        }
        Ok(_) => CheckResult::problem(ABOUT, "it has a segment, and could make no beacon for it")
            .advice("a note above says why; fix that, and restart the program"),
        Err(error) => CheckResult::problem(ABOUT, format!("its segment cannot be read: {error}"))
            .advice("use the pfp-top of the version that the program was built with"),
    }
}

fn instrumented(has_segment: bool, has_sign: bool) -> CheckResult {
    match (has_segment, has_sign) {
        (true, _) => CheckResult::ok(ABOUT, "it is instrumented, and has a segment"),
        (_, true) => CheckResult::note(ABOUT, "it is built with pfp, and has no segment").advice(
            "it has not reached a point yet, or could not create one (then a finding below says \
             why)",
        ),
        _ => CheckResult::problem(ABOUT, "it is not instrumented: nothing of pfp is in it").advice(
            "mark regions with pfp and rebuild it; `pfp-top run -- CMD` starts a program that is \
             annotated for NVTX, ITT, OpenMP or Kokkos",
        ),
    }
}

/// Reads the beacons of these segments, and the messages about failures that the process has left.
/// `inside` is the process's id in its own pid namespace.
fn segment_findings(inside: u32, segments: &[String]) -> Vec<CheckResult> {
    let here = Identity::of_this_process();
    let mut findings = Vec::new();
    for place in find::find_everywhere().0 {
        let has_it = |entry: &&find::Entry| segments.iter().any(|id| id == entry.info.object.hex());
        let own = place.entries.iter().filter(has_it);
        findings.extend(own.map(|entry| process("segment", entry, &here)));
        let notes = Directory::open(&place.looked_in).and_then(|dir| failure::find(&dir));
        let notes = notes.unwrap_or_default();
        let own = notes.iter().filter(|note| note.pid == inside);
        findings.extend(own.map(|note| failed("segment", note)));
    }
    findings
}

/// Paths of the process's loaded files that may contain pfp, as the process sees them.
fn libraries_of(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let is_ours = |line: &&str| line.contains(" r-xp ") && line.contains("pfp");
    let ours = maps.lines().filter(is_ours).filter_map(|line| line.split_ascii_whitespace().nth(5));
    ours.map(str::to_owned).collect()
}

/// Opens a regular file. Does not block if the path leads to something else by now, such as a pipe
/// without a writer.
fn open(path: &str) -> Option<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(|about| about.is_file()).then_some(file)
}

/// Whether a program or library was built with pfp.
fn has_sign(file: File) -> bool {
    contains(BufReader::with_capacity(1 << 20, file), SIGN)
}

/// Whether the input contains these bytes.
fn contains(mut input: impl BufRead, wanted: &[u8]) -> bool {
    let mut window: Vec<u8> = Vec::new();
    loop {
        let keep = window.len().min(wanted.len() - 1);
        window.drain(..window.len() - keep);
        match input.by_ref().take(1 << 20).read_to_end(&mut window) {
            Ok(1..) => {}
            _ => return false,
        }
        if window.windows(wanted.len()).any(|it| it == wanted) {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_counts_as_ended() {
        let mut child = std::process::Command::new("true").spawn().expect("it starts");
        while !is_zombie(child.id()) {
            std::thread::yield_now();
        }
        let findings = all(child.id());
        assert!(
            matches!(&findings[..], [only] if only.found.contains("has ended")),
            "{findings:?}"
        );
        child.wait().expect("it was there");
    }

    #[test]
    fn a_sign_is_found_across_buffer_boundaries() {
        let mut bytes = vec![0u8; (2 << 20) + 100];
        assert!(!contains(&bytes[..], SIGN) && !contains(&b""[..], SIGN));
        for place in [0, (1 << 20) - 5, (2 << 20) + 89] {
            bytes[place..place + SIGN.len()].copy_from_slice(SIGN);
            assert!(contains(&bytes[..], SIGN), "{place}");
            bytes.fill(0);
        }
    }
}

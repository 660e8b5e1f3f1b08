//! The started program: its processes, and how it ends.
//!
//! The program belongs to the user. Only [`RunningProgram::end`] ends it: a viewer that fails
//! leaves it running.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};

use crate::signals;
use pfp_read::source::Candidate;
use pfp_read::text::warn;

/// The time the program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
/// The time the program may take to end by a signal that the terminal has sent to the program and
/// this process alike, such as Ctrl-C.
const BY_ITSELF: Duration = Duration::from_secs(1);
/// Maximum depth of a process tree; a longer chain of parents is a cycle.
const DEPTH: usize = 256;

/// The destination of the program's output, and whether the program gets a process group of its
/// own.
pub(super) struct Output {
    /// The file for the program's output, with its path. Without one, the output goes where this
    /// process's output goes.
    pub(super) log: Option<(File, PathBuf)>,
    /// Whether the program gets a process group of its own, since the screen uses the terminal.
    pub(super) own_group: bool,
}

/// A running program. Dropping this leaves the program running, and prints a message about that.
pub(super) struct RunningProgram {
    child: Child,
    command: OsString,
    log: Option<PathBuf>,
    own_group: bool,
    started_unix_ns: u64,
    /// The run id in the segments of the program's processes, set by `PFP_RUN`.
    run: u64,
    status: Option<ExitStatus>,
    /// Whether this process has asked the program to end.
    was_asked: bool,
    /// Ids of the segments of the program's processes. The parent of a process is unknown once the
    /// process is gone, so each id is noted when it is first seen.
    known: HashSet<String>,
}

impl RunningProgram {
    /// Starts the program. An error comes with the exit status that shells use for it.
    pub(super) fn start(
        command: &[OsString],
        environment: &[(&str, OsString)],
        run: u64,
        output: Output,
    ) -> Result<Self, (u8, anyhow::Error)> {
        let name = Path::new(&command[0]).display().to_string();
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let failed = |status: u8| {
            let name = name.clone();
            move |error: io::Error| (status, anyhow!(error).context(name))
        };
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]).envs(environment.iter().map(|(name, value)| (name, value)));
        let (file, log) = output.log.unzip();
        if let Some(file) = file {
            process.stdout(file.try_clone().map_err(failed(126))?).stderr(file);
        }
        signals::pass_on(&mut process);
        if output.own_group {
            process.process_group(0);
            // Keys are for the viewer; input from a pipe is for the program.
            if io::stdin().is_terminal() {
                process.stdin(Stdio::null());
            }
        }
        let child = process.spawn().map_err(|error| {
            let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            failed(status)(error)
        })?;
        Ok(Self {
            child,
            command: command[0].clone(),
            log,
            own_group: output.own_group,
            started_unix_ns: started.map_or(0, |t| t.as_nanos() as u64),
            run,
            status: None,
            was_asked: false,
            known: HashSet::new(),
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn command(&self) -> &OsStr {
        &self.command
    }

    pub(super) fn name(&self) -> std::path::Display<'_> {
        Path::new(&self.command).display()
    }

    /// Whether this process has asked the program to end.
    pub(super) fn was_asked(&self) -> bool {
        self.was_asked
    }

    /// How the program ended; `None` while it runs.
    pub(super) fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // Cannot fail: the program is a child of this process.
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Whether this is the program itself or a process that descends from it.
    pub(super) fn owns(&mut self, candidate: &Candidate) -> bool {
        if candidate.run == self.run || self.known.contains(&candidate.segment_id) {
            return true;
        }
        let owned = candidate.started_unix_ns >= self.started_unix_ns
            && self.is_of_the_family(candidate.visible_pid());
        if owned {
            self.known.insert(candidate.segment_id.clone());
        }
        owned
    }

    fn is_of_the_family(&self, pid: u32) -> bool {
        let mut ancestor = Some(pid);
        for _ in 0..DEPTH {
            match ancestor {
                Some(found) if found == self.id() => return true,
                Some(found @ 2..) => {
                    let stat = Stat::of(found);
                    // A process whose parent ends gets another parent, but stays in the process
                    // group.
                    if self.own_group && stat.as_ref().is_some_and(|s| s.group == self.id()) {
                        return true;
                    }
                    ancestor = stat.map(|stat| stat.parent);
                }
                _ => return false,
            }
        }
        false
    }

    /// If the program is in this process's group, the terminal has sent it the same signal as this
    /// process, so waits a moment for the program to end by itself.
    pub(super) fn may_end(&mut self) {
        if !self.own_group {
            self.wait(BY_ITSELF, &[]);
        }
    }

    /// Ends the program and its children if they still run: with SIGTERM, and after a while with
    /// SIGKILL.
    pub(super) fn end(&mut self) -> Result<ExitStatus> {
        self.may_end();
        if self.status().is_none() {
            self.was_asked = true;
            // List the children first: once the program is gone, they cannot be found.
            let children = self.children();
            self.signal(libc::SIGTERM, &children);
            self.wait(GRACE, &children);
            self.signal(libc::SIGKILL, &children);
        }
        match self.status() {
            Some(status) => Ok(status),
            None => {
                let status = self.child.wait().context("the program cannot be waited for")?;
                Ok(*self.status.insert(status))
            }
        }
    }

    /// Waits up to `timeout` for the program and its children to end.
    fn wait(&mut self, timeout: Duration, children: &[ProcessIdentity]) {
        let start = Instant::now();
        while (self.status().is_none() || children.iter().any(ProcessIdentity::runs))
            && start.elapsed() < timeout
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The processes that descend from the program.
    fn children(&self) -> Vec<ProcessIdentity> {
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|&pid| pid != self.id() && self.is_of_the_family(pid))
            .filter_map(ProcessIdentity::of)
            .collect()
    }

    /// Sends a signal to the program and its children. A shell would not pass the signal on to its
    /// children.
    fn signal(&mut self, signal: libc::c_int, children: &[ProcessIdentity]) {
        let send = |pid: u32| {
            // SAFETY: `kill` takes plain numbers and has no preconditions.
            unsafe { libc::kill(pid as libc::pid_t, signal) }
        };
        // The child was not reaped, so its id still belongs to it.
        if self.status().is_none() {
            send(self.id());
        }
        for child in children.iter().filter(|child| child.runs()) {
            send(child.pid);
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if self.status().is_none() {
            let output = match &self.log {
                Some(log) => format!("; its output goes to {}", log.display()),
                None => String::new(),
            };
            warn(&format!("{} [{}] continues without pfp-top{output}", self.name(), self.id()));
        }
    }
}

/// A process, identified by id and start: after the process has ended, another process may get the
/// same id.
struct ProcessIdentity {
    pid: u32,
    started: u64,
}

impl ProcessIdentity {
    fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: Stat::of(pid)?.started })
    }

    fn runs(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.started == self.started && !stat.has_ended)
    }
}

/// Fields of `/proc/PID/stat`; see proc_pid_stat(5).
struct Stat {
    /// Whether the process is a zombie.
    has_ended: bool,
    parent: u32,
    group: u32,
    /// Start of the process, kernel ticks since boot.
    started: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The second field, the name in brackets, may contain any bytes, even brackets and blanks.
        let stat = String::from_utf8_lossy(&stat);
        // The fields from the third on.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse().ok();
        Some(Self {
            has_ended: matches!(fields.first(), Some(&("Z" | "X"))),
            parent: number(4)? as u32,
            group: number(5)? as u32,
            started: number(22)?,
        })
    }
}

/// The exit status by which this process passes on the program's status, as shells do.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.saturating_add(signal as u8),
        (None, None) => 1,
    }
}

/// How a program ended, in words: `status 3`, `signal 11`.
pub(super) fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}{}", signal_name(signal)),
        (None, None) => status.to_string(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => " (SIGHUP)",
        libc::SIGINT => " (SIGINT)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGKILL => " (SIGKILL)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGPIPE => " (SIGPIPE)",
        libc::SIGTERM => " (SIGTERM)",
        _ => "",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn start(script: &str) -> RunningProgram {
        start_in(script, true)
    }

    fn start_in(script: &str, own_group: bool) -> RunningProgram {
        let command = ["sh", "-c", script].map(OsString::from);
        let log = Some((tempfile::tempfile().unwrap(), PathBuf::from("log")));
        let output = Output { log, own_group };
        RunningProgram::start(&command, &[], 7, output).map_err(|(_, why)| why).unwrap()
    }

    fn candidate(pid: u32) -> Candidate {
        Candidate {
            pid,
            segment_id: format!("{pid:032x}"),
            started_unix_ns: u64::MAX,
            ..Candidate::default()
        }
    }

    pub(in crate::cli::run) fn wait_for<T>(what: &str, condition: impl Fn() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = condition() {
                return found;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_status_is_passed_on_as_shells_do() {
        for (script, code, words) in [
            ("exit 0", 0, "status 0"),
            ("exit 3", 3, "status 3"),
            ("kill -SEGV $$", 139, "signal 11 (SIGSEGV)"),
        ] {
            let mut program = start(script);
            program.wait(Duration::from_secs(60), &[]);
            let status = program.end().unwrap();
            assert_eq!((exit_code(status), in_words(status).as_str()), (code, words));
        }
    }

    #[test]
    fn a_program_that_still_runs_is_asked_to_end_with_all_its_children() {
        let mut program = start("sleep 1000 & echo; wait");
        let family = || {
            let all = std::fs::read_dir("/proc").unwrap().flatten();
            all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect::<Vec<u32>>()
        };
        let id = program.id();
        let of_it = |pid: &u32| Stat::of(*pid).is_some_and(|stat| stat.parent == id);
        let child = wait_for("its child", || family().into_iter().find(of_it));
        assert!(program.owns(&candidate(child)) && program.owns(&candidate(id)));
        assert!(!program.owns(&candidate(1)) && !program.owns(&candidate(std::process::id())));
        let older = Candidate { started_unix_ns: 1, segment_id: "old".into(), ..candidate(id) };
        assert!(!program.owns(&older), "a process of the same id that ran before");
        assert_eq!(exit_code(program.end().unwrap()), 128 + 15);
        wait_for("the child to end", || {
            Stat::of(child).is_none_or(|stat| stat.group != id).then_some(())
        });
        assert!(program.owns(&candidate(child)), "what was known stays so");
    }

    #[test]
    fn a_program_outlives_a_failing_viewer() {
        let program = start("exec sleep 1000");
        let (pid, process) = (program.id(), ProcessIdentity::of(program.id()).unwrap());
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _program = program;
            panic!("a fault of the viewer");
        }));
        assert!(failed.is_err() && process.runs());
        // SAFETY: `kill` takes plain numbers; the process is not reaped yet, so the id is its own.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
        wait_for("it to end", || (!process.runs()).then_some(()));
    }

    /// The children are in the test's own process group, so the signal must not go to the whole
    /// group.
    #[test]
    fn children_are_ended_in_any_group_and_if_they_ignore_sigterm() {
        let end = |ignored: &str| {
            let mut program = start_in(&format!("{ignored}sleep 1000 & sleep 1000"), false);
            let children =
                wait_for("its children", || Some(program.children()).filter(|all| all.len() == 2));
            program.end().unwrap();
            wait_for("its children to end", || {
                (!children.iter().any(ProcessIdentity::runs)).then_some(())
            });
        };
        std::thread::scope(|scope| {
            for ignored in ["", "trap '' TERM; "] {
                scope.spawn(move || end(ignored));
            }
        });
    }

    #[test]
    fn a_process_may_have_any_name() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(std::ffi::OsStr::from_bytes(b"a) \xff ("));
        // Copied by another process. If this process wrote the file, a child forked by another test
        // could inherit the open descriptor, and executing the file would fail (ETXTBSY).
        let copied = Command::new("cp").arg("/bin/sleep").arg(&path).status().unwrap();
        assert!(copied.success());
        let command = [path.into_os_string(), "1000".into()];
        let output = Output { log: None, own_group: true };
        let mut program =
            RunningProgram::start(&command, &[], 7, output).map_err(|(_, why)| why).unwrap();
        let stat = Stat::of(program.id()).expect("it runs");
        assert_eq!((stat.parent, stat.group), (std::process::id(), program.id()));
        program.end().unwrap();
    }

    #[test]
    fn a_failed_start_has_the_exit_status_of_shells() {
        let status = |command: &str| {
            let output = Output { log: None, own_group: true };
            RunningProgram::start(&[command.into()], &[], 7, output).err().map(|(status, _)| status)
        };
        assert_eq!(status("/no/such/program"), Some(127));
        assert_eq!(status("/"), Some(126));
    }
}

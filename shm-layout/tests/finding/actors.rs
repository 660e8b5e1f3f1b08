//! Starts other processes for a test and exchanges lines of text with them.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use pfp_shm_layout::environment::variable;
use pfp_shm_layout::name::Name;

/// Another process of this binary, in a role.
pub(crate) struct Actor {
    child: Child,
    tells: BufReader<ChildStdout>,
    listens: ChildStdin,
}

/// A child of another process. It outlives its parent and is killed when the test ends.
pub(crate) struct Orphan(pub(crate) i32);

impl Drop for Orphan {
    fn drop(&mut self) {
        // SAFETY: a plain system call without pointers. The process waits for this signal, so its
        // id is not reused.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

const MARK: &str = "pfp-test:";

impl Actor {
    pub(crate) fn start(role: &str, arguments: &[&Path]) -> Actor {
        let arguments: Vec<&[u8]> = arguments.iter().map(|a| a.as_os_str().as_bytes()).collect();
        let exe = std::env::current_exe().unwrap();
        // The program that runs binaries of a foreign processor, such as an emulator.
        let runner = variable(c"PFP_TEST_RUNNER").unwrap_or_default().to_str().unwrap();
        let mut words = runner.split_whitespace();
        let mut command = Command::new(words.next().map_or(exe.as_os_str(), OsStr::new));
        if !runner.is_empty() {
            command.args(words).arg(&exe);
        }
        let mut child = command
            .args(["--exact", "roles::role", "--nocapture"])
            .env("PFP_TEST_ROLE", role)
            .env("PFP_TEST_ARGUMENTS", OsString::from_vec(arguments.join(&b'|')))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Actor {
            tells: BufReader::new(child.stdout.take().unwrap()),
            listens: child.stdin.take().unwrap(),
            child,
        }
    }

    /// Reads the next line that the process prints.
    pub(crate) fn hears(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.tells.read_line(&mut line).unwrap(), 0, "it ended");
            if let Some((_, text)) = line.split_once(MARK) {
                return text.trim_end().to_owned();
            }
        }
    }

    pub(crate) fn hears_name(&mut self) -> Name {
        Name::parse(&self.hears()).unwrap()
    }

    pub(crate) fn says(&mut self, text: &str) {
        writeln!(self.listens, "{text}").unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn ends(&mut self) -> ExitStatus {
        let mut rest = String::new();
        self.tells.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn tell(text: impl std::fmt::Display) {
    let mut out = io::stdout().lock();
    writeln!(out, "{MARK}{text}").unwrap();
    out.flush().unwrap();
}

pub(crate) fn hear() -> String {
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

//! A target as its test sees it: a child process in a beacon directory of its
//! own, which says things and waits.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find::{self, Entry};
use pfp_shm_layout::object;

/// Only a hang reaches this.
pub const DEADLINE: Duration = Duration::from_secs(crate::size(120, 1200));

/// Waits for a condition; what it is waited for is said when it never comes.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(result) = condition() {
            return result;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A directory for beacons; whatever is found in it at the end is removed, with
/// the shared memory it leads to.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// A new directory.
    #[must_use]
    pub fn new() -> Self {
        Self { path: crate::screen::new_folder("pfp-test") }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The segments that were found here, the newest first.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        find::find(&self.directory()).expect("the directory can be read").entries
    }

    /// The directory, for the finder.
    #[must_use]
    pub fn directory(&self) -> Directory {
        Directory::open(&self.path).expect("the directory is as it was made")
    }

    /// The segment of a process.
    #[must_use]
    pub fn entry(&self, pid: u32) -> Option<Entry> {
        self.entries().into_iter().find(|entry| entry.info.process.pid == pid)
    }

    /// Starts a program with its beacons here.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PFP_")) {
                command.env_remove(name);
            }
        }
        command.env("PFP_DIR", &self.path);
        command
    }

    /// Starts a scenario of the target program.
    #[must_use]
    pub fn start(&self, program: &str, arguments: &[&str]) -> Target {
        Target::start(self.command(program).args(arguments))
    }

    /// The same, with a variable in its environment.
    #[must_use]
    pub fn start_with(
        &self,
        program: &str,
        arguments: &[&str],
        name: &str,
        value: impl AsRef<OsStr>,
    ) -> Target {
        Target::start(self.command(program).args(arguments).env(name, value))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What crashed targets left. Those that a failing test leaves running
        // are killed by then, as `Target` is dropped before its place.
        for entry in find::find(&self.directory()).map(|found| found.entries).unwrap_or_default() {
            let _ = object::unlink(&entry.info.object);
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Has a program killed with the thread that starts it, so that it does not outlive a
/// test that was killed.
pub fn end_with_test(command: &mut Command) -> &mut Command {
    // SAFETY: prctl is safe to call after a fork.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    }
}

/// A running target. Killed when dropped.
#[derive(Debug)]
pub struct Target {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    said: Said,
}

/// What a target has said, by the first word of each line.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Of a program that follows no script.
    all: Vec<String>,
    lines: BTreeMap<String, Vec<Vec<String>>>,
}

/// How a target ended.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// All that it wrote on standard error.
    pub errors: String,
    /// All that it said.
    pub said: Said,
}

impl Target {
    /// Starts a program that follows a script.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let mut child = end_with_test(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
        let input = child.stdin.take();
        let (send, lines) = mpsc::channel();
        let output = child.stdout.take().expect("it was piped");
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let (send, errors) = mpsc::channel();
        let mut output = child.stderr.take().expect("it was piped");
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = output.read_to_end(&mut bytes);
            let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
        });
        Self { child, input, lines, errors, said: Said::default() }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    #[must_use]
    pub fn said(&self) -> &Said {
        &self.said
    }

    /// Listens until the target has reached a step, at which it waits.
    pub fn reach(&mut self, step: &str) -> &Said {
        loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) if line == step => return &self.said,
                Ok(line) => self.said.note(&line),
                Err(_) => {
                    let _ = self.child.kill();
                    let ended = self.child.wait();
                    let errors = self.errors.recv_timeout(DEADLINE).unwrap_or_default();
                    panic!("the target never reached {step:?}: {ended:?}, it said {errors}");
                }
            }
        }
    }

    /// Whether the target has reached a step by now. Does not wait.
    pub fn has_reached(&mut self, step: &str) -> bool {
        loop {
            match self.lines.try_recv() {
                Ok(line) if line == step => return true,
                Ok(line) => self.said.note(&line),
                Err(mpsc::TryRecvError::Empty) => return false,
                Err(mpsc::TryRecvError::Disconnected) => {
                    panic!("the target ended before {step:?}")
                }
            }
        }
    }

    /// All lines so far, of a program that follows no script.
    pub fn lines_so_far(&mut self) -> &[String] {
        self.said.all.extend(self.lines.try_iter());
        &self.said.all
    }

    /// Lets the target go on from the step at which it waits.
    pub fn go(&mut self) {
        let input = self.input.as_mut().expect("it was piped");
        input.write_all(b"\n").expect("the target listens");
    }

    /// The same, with a word for it.
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it was piped");
        writeln!(input, "{line}").expect("the target listens");
    }

    /// Lets the target run to its end.
    pub fn end(mut self) -> Ended {
        self.input = None;
        let status = wait_for("the target to end", || self.child.try_wait().ok().flatten());
        while let Ok(line) = self.lines.recv_timeout(DEADLINE) {
            self.said.note(&line);
        }
        let errors = self.errors.recv_timeout(DEADLINE).unwrap_or_default();
        Ended { status, errors, said: std::mem::take(&mut self.said) }
    }

    /// Lets the target run to its end, which must be a good and a quiet one.
    pub fn end_well(self) -> Said {
        let ended = self.end();
        let Ended { status, errors, said } = &ended;
        assert!(status.success(), "{status}: {errors}\nit said {said:?}");
        assert_eq!(errors, "", "the target wrote on standard error; it said {said:?}");
        ended.said
    }

    /// Kills the target as a crash would.
    pub fn kill(mut self) -> Said {
        let _ = self.child.kill();
        let _ = self.child.wait();
        std::mem::take(&mut self.said)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Said {
    fn note(&mut self, line: &str) {
        let mut words = line.split_whitespace().map(str::to_owned);
        if let Some(key) = words.next() {
            self.lines.entry(key).or_default().push(words.collect());
        }
    }

    /// All lines in words: the keys, in their order, and what stood behind each.
    pub fn lines(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.lines.iter().flat_map(|(key, lines)| {
            lines.iter().map(move |values| (key.as_str(), values.as_slice()))
        })
    }

    /// Whether there is a line with this key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.lines.contains_key(key)
    }

    /// The values of each line with this key.
    pub fn all<T: FromStr>(&self, key: &str) -> Vec<Vec<T>> {
        let parse = |word: &String| {
            word.parse().unwrap_or_else(|_| panic!("{key}: cannot make sense of {word:?}"))
        };
        let lines = self.lines.get(key).map(Vec::as_slice).unwrap_or_default();
        lines.iter().map(|values| values.iter().map(parse).collect()).collect()
    }

    /// The only value of the last line with this key.
    pub fn one<T: FromStr + Clone>(&self, key: &str) -> T {
        let all = self.all(key);
        let value = all.last().and_then(|values| values.first()).cloned();
        value.unwrap_or_else(|| panic!("the target never said {key:?}, but {:?}", self.lines))
    }
}

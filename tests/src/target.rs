//! The test's side of a target: a child process that prints lines, waits at its steps, and
//! continues when the test tells it to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// A limit that only a hang reaches.
pub const DEADLINE: Duration = Duration::from_secs(crate::size(120, 1200));
/// A target that is silent until the deadline counts as hung if its CPU time is less than one part
/// in USED of that period. A target that used more is only slow: other programs use its CPUs.
const USED: u32 = 50;
/// The longest pause between two checks of a condition.
pub(crate) const PAUSE: Duration = Duration::from_millis(40);

/// The result of a condition: whether it holds, or the value to wait for.
pub trait Condition {
    /// The result of the wait.
    type Value;
    /// The value, once it is available.
    fn value(self) -> Option<Self::Value>;
}

impl Condition for bool {
    type Value = ();

    fn value(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Condition for Option<T> {
    type Value = T;

    fn value(self) -> Self {
        self
    }
}

/// Waits for a condition; after [`DEADLINE`] it panics with `what` in the message.
#[track_caller]
pub fn wait_for<A: Condition>(what: &str, mut condition: impl FnMut() -> A) -> A::Value {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().value() {
            return value;
        }
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep((start.elapsed() / 8).clamp(Duration::from_millis(1), PAUSE));
    }
}

/// Makes the kernel kill a program when the thread that starts it ends, so that it does not outlive
/// a test that was killed.
pub fn end_with_test(command: &mut Command) -> &mut Command {
    // SAFETY: prctl may be called between fork and exec.
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
    // The mutexes make the target shareable between threads; they are never contended.
    lines: Mutex<Receiver<String>>,
    errors: Mutex<Receiver<String>>,
    said: Said,
}

/// The lines of a target, by their first word.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The lines of a program that follows no script.
    all: Vec<String>,
    lines: BTreeMap<String, Vec<Vec<String>>>,
}

/// How a target ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Everything that it wrote to standard error.
    pub errors: String,
    /// Everything that it printed.
    pub said: Said,
}

impl Target {
    /// Starts a program, whether or not it follows a script.
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
        let (lines, errors) = (Mutex::new(lines), Mutex::new(errors));
        Self { child, input, lines, errors, said: Said::default() }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The lines it has printed so far.
    #[must_use]
    pub fn said(&self) -> &Said {
        &self.said
    }

    /// Waits until the target has reached a step, at which the target pauses. Panics if the target
    /// is silent for [`DEADLINE`] and hardly uses CPU time. A silent target that works, as on a
    /// busy machine, has until it and its children have used [`DEADLINE`] of CPU time for each CPU.
    pub fn reach(&mut self, step: &str) -> &Said {
        let most = DEADLINE * crate::os::cpus().len() as u32;
        let cpu = |target: &Self| crate::os::family_cpu(target.pid()).unwrap_or_default();
        let mut before = cpu(self);
        let mut used = Duration::ZERO;
        loop {
            match lines_of(&mut self.lines).recv_timeout(DEADLINE) {
                Ok(line) if line == step => return &self.said,
                Ok(line) => {
                    self.said.note(&line);
                    (before, used) = (cpu(self), Duration::ZERO);
                }
                Err(error) => {
                    let now = cpu(self);
                    let more = now.saturating_sub(before);
                    (before, used) = (now, used + more);
                    let is_at_work = more >= DEADLINE / USED && used < most;
                    if error == mpsc::RecvTimeoutError::Timeout && is_at_work {
                        continue;
                    }
                    let _ = self.child.kill();
                    let ended = self.child.wait();
                    let errors =
                        lines_of(&mut self.errors).recv_timeout(DEADLINE).unwrap_or_default();
                    let said = &self.said;
                    panic!(
                        "the target never reached {step:?}: {ended:?}; {errors}\nit said {said:?}"
                    );
                }
            }
        }
    }

    /// Whether the target has reached a step by now. Returns at once.
    pub fn has_reached(&mut self, step: &str) -> bool {
        loop {
            match lines_of(&mut self.lines).try_recv() {
                Ok(line) if line == step => return true,
                Ok(line) => self.said.note(&line),
                Err(mpsc::TryRecvError::Empty) => return false,
                // This panics, with the end of the target in its message.
                Err(mpsc::TryRecvError::Disconnected) => _ = self.reach(step),
            }
        }
    }

    /// All lines so far of a program that follows no script.
    pub fn lines_so_far(&mut self) -> &[String] {
        self.said.all.extend(lines_of(&mut self.lines).try_iter());
        &self.said.all
    }

    /// Continues the target from the step at which it waits.
    pub fn go(&mut self) {
        self.tell("");
    }

    /// Writes a line to its standard input.
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it was piped");
        writeln!(input, "{line}").expect("the target listens");
    }

    /// Waits until the target ends.
    pub fn end(mut self) -> Ended {
        self.input = None;
        let status = wait_for("the target to end", || self.child.try_wait().ok().flatten());
        while let Ok(line) = lines_of(&mut self.lines).recv_timeout(DEADLINE) {
            self.said.note(&line);
        }
        let errors = lines_of(&mut self.errors).recv_timeout(DEADLINE).unwrap_or_default();
        Ended { status, errors, said: std::mem::take(&mut self.said) }
    }

    /// Waits until the target ends, and asserts that it succeeded and wrote no errors.
    pub fn end_well(self) -> Said {
        let ended = self.end();
        let Ended { status, errors, said } = &ended;
        assert!(status.success(), "{status}: {errors}\nit said {said:?}");
        assert_eq!(errors, "", "the target wrote on standard error; it said {said:?}");
        ended.said
    }

    /// Kills the target as a crash would, and waits until it is dead. It is not reaped yet, so that
    /// the kernel still reports how it ended.
    pub fn kill(&mut self) {
        // This fails only if the target has ended already.
        let _ = self.child.kill();
        // SAFETY: zero is a valid `siginfo_t`, which the call fills.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, self.pid(), &raw mut info, libc::WEXITED | libc::WNOWAIT);
        }
    }

    /// Reaps a killed target, so that the kernel may use its id again.
    pub fn reap(&mut self) {
        let _ = self.child.wait();
    }
}

fn lines_of(receiver: &mut Mutex<Receiver<String>>) -> &mut Receiver<String> {
    receiver.get_mut().expect("nobody locks it")
}

impl Drop for Target {
    fn drop(&mut self) {
        self.kill();
        self.reap();
    }
}

impl Said {
    fn note(&mut self, line: &str) {
        let mut words = line.split_whitespace().map(str::to_owned);
        if let Some(key) = words.next() {
            self.lines.entry(key).or_default().push(words.collect());
        }
    }

    /// All lines, sorted by key, each as its key and the words after it.
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

//! The viewer in a real terminal: tmux holds it, the test types and reads.
//!
//! ```text
//!  test -- keys --> tmux -- pty --> sh --> pfp-top --- segment --- target
//!   |  <-- text --    |
//! ```
//!
//! Each test has a [`Stage`]: a folder of its own that its targets and viewers
//! meet in, taken away in the end with everything that was started on it. No
//! test waits for a time to pass: [`Screen::wait_for`] waits for a condition,
//! with a deadline so far away that only a hang reaches it.

use std::cell::RefCell;
use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find;
use pfp_shm_layout::segment::Segment;
use pfp_top::export::json;
use pfp_top::snapshot::Snapshot;

/// Longer than anything here takes on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(crate::size(60, 1200));
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(40);
/// What the shell shows when it waits for a command.
pub const PROMPT: &str = "shell> ";

/// Leaves a test for which there is no terminal; see [`crate::lacks`].
#[macro_export]
macro_rules! needs_a_screen {
    () => {
        if $crate::lacks("the viewer in a terminal", "tmux") {
            return;
        }
    };
}

/// The viewer under test: `PFP_TOP`, or the one built with this test and found beside it.
pub fn pfp_top() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        if let Some(named) = std::env::var_os("PFP_TOP") {
            return named.into();
        }
        // TARGET/[TRIPLE/]PROFILE/deps/TEST
        let test = std::env::current_exe().expect("a test knows its own path");
        test.ancestors().nth(2).expect("tests lie in PROFILE/deps").join("viewer")
    })
}

/// Whether the last line on a screen is the shell's prompt, and nothing behind it.
fn ends_with_prompt(text: &str) -> bool {
    let last = text.lines().rfind(|line| !line.is_empty());
    last.is_some_and(|line| line.trim_end() == PROMPT.trim_end())
}

/// A folder of its own for a test, and what runs in it.
#[derive(Debug)]
pub struct Stage {
    folder: PathBuf,
}

impl Stage {
    /// An empty one.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        let folder = new_folder("pfp-stage");
        DirBuilder::new().mode(0o700).create(folder.join("beacons")).expect("and one in it");
        Self { folder }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Where the beacons are.
    pub fn beacons(&self) -> PathBuf {
        self.path("beacons")
    }

    /// The names of the beacons that are there now.
    pub fn lit(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.beacons()).expect("the folder of beacons");
        files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect()
    }

    /// A program that knows where this test's beacons are, and nothing of the
    /// tester's own settings.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("PFP_DIR", self.beacons()).current_dir(&self.folder);
        for variable in ["NO_COLOR", "PFP_DEFAULT", "PFP_CLOCK", "PFP_LOG", "TMUX"] {
            command.env_remove(variable);
        }
        command.env("PFP_TOP_CONFIG", "");
        // What is asserted is in UTF-8 and in no one's language.
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// Runs the viewer without a terminal, to its end.
    pub fn pfp_top(&self, arguments: &[&str]) -> Output {
        self.command(pfp_top()).args(arguments).output().expect("pfp-top starts")
    }

    /// Starts a program that takes orders on its standard input.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Target {
        let child = self
            .command(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the target starts");
        Target { child }
    }

    /// The same, and waits until it can be watched: its beacon is lit before that.
    #[track_caller]
    pub fn start_lit(&self, program: &str, arguments: &[&str]) -> Target {
        let target = self.start(program, arguments);
        wait_until("its segment", || {
            let found = Directory::open(&self.beacons()).and_then(|dir| find::find(&dir));
            let entries = found.map_or_else(|_| Vec::new(), |found| found.entries);
            entries.iter().any(|entry| {
                entry.info.process.pid == target.pid() && Segment::open(&entry.info.object).is_ok()
            })
        });
        target
    }

    /// The figures of a target by another way than the screen: a snapshot that a second
    /// viewer takes.
    #[track_caller]
    pub fn snapshot(&self, target: &Target) -> Snapshot {
        let file = self.path(&format!("oracle-{}.json", target.pid()));
        let (pid, path) = (target.pid().to_string(), file.to_str().expect("it is plain text"));
        let output = self.pfp_top(&["snapshot", "-p", &pid, "-o", path, "--force"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json::read(&file).expect("what was written can be read")
    }

    /// A shell in a terminal of this size.
    pub fn screen(&self, width: u16, height: u16) -> Screen<'_> {
        Screen::new(self, width, height)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Segments of targets that were killed are nobody's now.
        let _ = self.command(pfp_top()).arg("gc").output();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A new folder of this name and two numbers, for this user alone. What a test process that
/// was killed has left may have the next one's names: process ids come round again.
pub(crate) fn new_folder(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("{name}-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return folder,
            Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(why) => panic!("{}: {why}", folder.display()),
        }
    }
}

/// A program to watch. Dropping it ends it.
#[derive(Debug)]
pub struct Target {
    child: Child,
}

impl Target {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input.
    pub fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("the target still listens");
        writeln!(input, "{line}").expect("the target reads");
    }

    /// Ends it in order, and waits until it has ended.
    pub fn end(&mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("the target is this test's child");
        assert!(status.success(), "{status}");
    }

    /// Kills it, and waits until it is dead.
    pub fn kill(&mut self) {
        self.child.kill().expect("the target is this test's child");
        self.child.wait().expect("the target is this test's child");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process is there and not just waiting to be noticed as dead.
pub fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

/// Waits until something holds; `what` is said when it does not.
#[track_caller]
pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for: {what}");
        thread::sleep(PAUSE);
    }
}

/// A terminal with a shell in it. Dropping it takes the terminal away.
#[derive(Debug)]
pub struct Screen<'a> {
    stage: &'a Stage,
    socket: PathBuf,
    /// What it showed when last looked at.
    last: RefCell<String>,
}

impl<'a> Screen<'a> {
    fn new(stage: &'a Stage, width: u16, height: u16) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let socket = stage.path(&format!("tmux-{}", NUMBER.fetch_add(1, Relaxed)));
        let screen = Self { stage, socket, last: RefCell::default() };
        // No line for tmux itself: the program gets the whole size.
        let settings = stage.path("tmux.conf");
        std::fs::write(
            &settings,
            "set -g status off\nset -g escape-time 0\nset -s set-clipboard on\n",
        )
        .expect("settings");
        let (width, height) = (width.to_string(), height.to_string());
        let mut tmux = screen.tmux();
        tmux.arg("-f").arg(settings).args(["new-session", "-d", "-x", &width, "-y", &height]);
        tmux.arg(format!("env PS1='{PROMPT}' TERM=screen-256color sh"));
        let made = tmux.output().expect("tmux starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        screen.wait_for("the shell", |text| text.starts_with(PROMPT.trim_end()));
        screen
    }

    fn tmux(&self) -> Command {
        let mut command = self.stage.command("tmux");
        command.arg("-S").arg(&self.socket);
        command
    }

    #[track_caller]
    fn ask(&self, arguments: &[&str]) -> String {
        let output = self.tmux().args(arguments).output().expect("tmux starts");
        assert!(
            output.status.success(),
            "tmux {arguments:?}: {}; last seen:\n{}",
            String::from_utf8_lossy(&output.stderr),
            self.last.borrow()
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts the viewer with these arguments from the shell.
    #[track_caller]
    pub fn pfp_top(&self, arguments: &str) {
        self.line(&format!("{} {arguments}", pfp_top().display()));
    }

    /// Types a line into the shell, which must be waiting for one: what is typed ahead of
    /// its prompt stands before that.
    #[track_caller]
    pub fn line(&self, text: &str) {
        self.wait_for("the prompt", ends_with_prompt);
        self.ask(&["send-keys", "-l", text]);
        self.wait_for("what was typed", |text| !ends_with_prompt(text));
        self.keys(&["Enter"]);
    }

    /// Presses keys, by tmux's names: `q`, `Enter`, `Escape`, `Space`, `C-c`.
    pub fn keys(&self, keys: &[&str]) {
        self.ask(&[&["send-keys"], keys].concat());
    }

    /// Types text as it is.
    pub fn text(&self, text: &str) {
        self.ask(&["send-keys", "-l", text]);
    }

    /// What the screen shows now, a line each, without blanks at their ends.
    pub fn shown(&self) -> String {
        let text = self.ask(&["capture-pane", "-p"]);
        self.last.replace(text.clone());
        text
    }

    /// The same with the escape sequences of colours and attributes.
    pub fn styled(&self) -> String {
        self.ask(&["capture-pane", "-p", "-e"])
    }

    /// Waits until the screen shows something, and returns it.
    ///
    /// A look may fall into the middle of a drawing, which goes from the top to the
    /// bottom: what is to be judged together belongs into one condition.
    #[track_caller]
    pub fn wait_for(&self, what: &str, shows: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let text = self.shown();
            if shows(&text) {
                return text;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain for: {what}; the screen:\n{text}");
            thread::sleep(PAUSE);
        }
    }

    /// Waits until the first line says how the watched process is doing.
    #[track_caller]
    pub fn wait_for_status(&self, word: &str) -> String {
        self.wait_for(word, |text| {
            text.lines().next().is_some_and(|line| line.trim_end().ends_with(word))
        })
    }

    /// Waits until the count of a point is above this; it must be so small that the
    /// screen has room for all of its digits.
    #[track_caller]
    pub fn wait_for_count(&self, name: &str, above: u64) -> String {
        self.wait_for(&format!("{name} to be counted"), |text| {
            row(text, name).and_then(|row| row.exact_count()).is_some_and(|count| count > above)
        })
    }

    /// Moves the cursor onto the row of a point, where rows do not move.
    #[track_caller]
    pub fn select(&self, name: &str) {
        self.keys(&["g", "g"]);
        let text = self.wait_for("the cursor at the top", |text| {
            rows(text).first().is_some_and(|row| row.selected)
        });
        let place = rows(&text).iter().position(|row| row.name() == name);
        for _ in 0..place.expect("the point is there") {
            self.keys(&["j"]);
        }
        self.wait_for("the cursor on the point", |text| {
            row(text, name).is_some_and(|row| row.selected)
        });
    }

    /// Waits until the shell has the terminal back, in the state that it gave it
    /// away in: its own lines on the screen, and a cursor.
    #[track_caller]
    pub fn wait_for_shell(&self) -> String {
        let text = self.wait_for("the shell", ends_with_prompt);
        let state = self.ask(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(state.trim(), "0 1", "alternate screen, cursor:\n{text}");
        text
    }

    /// Changes the terminal's size.
    pub fn resize(&self, width: u16, height: u16) {
        self.ask(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// Id of the viewer that runs in the foreground of this terminal.
    #[track_caller]
    pub fn viewer(&self) -> u32 {
        let shell: u32 =
            self.ask(&["display-message", "-p", "#{pane_pid}"]).trim().parse().unwrap();
        let children = |pid: u32| -> Vec<u32> {
            let path = format!("/proc/{pid}/task/{pid}/children");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
        };
        let is_viewer = |pid: &u32| {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == pfp_top())
        };
        let mut near = vec![shell];
        for _ in 0..3 {
            near = near.into_iter().flat_map(children).collect();
            if let Some(found) = near.iter().find(|pid| is_viewer(pid)) {
                return *found;
            }
        }
        panic!("no viewer runs here:\n{}", self.shown());
    }

    /// What was copied last; empty while nothing was.
    pub fn copied(&self) -> String {
        let output = self.tmux().arg("show-buffer").output().expect("tmux starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// From now on, everything that is written to the terminal goes to a file as well,
    /// byte by byte.
    pub fn tap(&self, file: &Path) {
        self.ask(&["pipe-pane", &format!("cat >> '{}'", file.display())]);
    }

    /// The title of the terminal.
    pub fn title(&self) -> String {
        self.ask(&["display-message", "-p", "#{pane_title}"])
    }

    /// Whether the program in the terminal has asked for the mouse.
    pub fn has_mouse(&self) -> bool {
        self.ask(&["display-message", "-p", "#{mouse_any_flag}"]).trim() == "1"
    }

    /// Takes the terminal away from whatever runs in it.
    pub fn take_away(&self) {
        // Where it is gone already there is nothing to take.
        let _ = self.tmux().arg("kill-server").output();
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        self.take_away();
    }
}

/// One row of the table of points, as it stands on a screen of 80 columns or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The cursor is on it.
    pub selected: bool,
    /// It measures.
    pub on: bool,
    /// Its id, name, count, rate and load, as they are shown.
    pub cells: Vec<String>,
}

impl Row {
    /// The point's name.
    pub fn name(&self) -> &str {
        &self.cells[1]
    }

    /// Its count, as shown.
    pub fn count(&self) -> &str {
        &self.cells[2]
    }

    /// Its count, where it is small enough to be shown in full.
    pub fn exact_count(&self) -> Option<u64> {
        self.count().parse().ok()
    }
}

/// The rows on a screen, from the top.
pub fn rows(text: &str) -> Vec<Row> {
    text.lines()
        .filter_map(|line| {
            let selected = line.starts_with('>');
            let rest = line.trim_start_matches(['>', ' ']);
            let on = rest.starts_with('●');
            let rest = rest.strip_prefix(['●', '○', '!'])?;
            let cells: Vec<_> = rest.split_whitespace().take(5).map(str::to_owned).collect();
            (cells.len() == 5).then_some(Row { selected, on, cells })
        })
        .collect()
}

/// The row of a point.
pub fn row(text: &str, name: &str) -> Option<Row> {
    rows(text).into_iter().find(|row| row.name() == name)
}

/// Measurements of a point in a snapshot, by threads that run and that have ended.
#[track_caller]
pub fn count(snapshot: &Snapshot, name: &str) -> u64 {
    let point = snapshot.points.iter().find(|point| point.name == name);
    let id = point.unwrap_or_else(|| panic!("no point {name}")).id;
    let cells = snapshot.cells.iter().filter(|cell| cell.point == id);
    cells.map(|cell| cell.stats.count + cell.retired.count).sum()
}

//! Runs the viewer in a real terminal of tmux, in which the test types keys and reads the screen.
//!
//! ```text
//!  test -- keys --> tmux -- pty --> sh --> pfp-top --- segment --- target
//!   |  <-- text --    |
//! ```
//!
//! A terminal belongs to a [`Place`], and is closed before the place is removed. No test waits for
//! a time to pass: [`Screen::wait_for`] waits for a condition.

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use crate::place::{Place, pfp_top};
use crate::target::{DEADLINE, PAUSE};

/// The shell's prompt, printed when it waits for a command.
pub const PROMPT: &str = "shell> ";

/// Returns from a test if there is no terminal; see [`crate::lacks`].
#[macro_export]
macro_rules! needs_a_screen {
    () => {
        if $crate::lacks("the viewer in a terminal", "tmux") {
            return;
        }
    };
}

/// Whether the last line on a screen is the shell's empty prompt.
fn ends_with_prompt(text: &str) -> bool {
    let last = text.lines().rfind(|line| !line.is_empty());
    last.is_some_and(|line| line.trim_end() == PROMPT.trim_end())
}

/// A terminal with a shell in it. Dropping it closes the terminal.
#[derive(Debug)]
pub struct Screen<'a> {
    place: &'a Place,
    socket: PathBuf,
    /// The text of the screen when it was last read.
    last: RefCell<String>,
}

impl<'a> Screen<'a> {
    pub(crate) fn new(place: &'a Place, width: u16, height: u16) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let socket = place.path(&format!("tmux-{}", NUMBER.fetch_add(1, Relaxed)));
        let screen = Self { place, socket, last: RefCell::default() };
        // tmux shows no status line, so the program gets the whole size.
        let settings = place.path("tmux.conf");
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
        let mut command = self.place.command("tmux");
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

    /// Types a line into the shell, after its prompt has appeared: a line typed ahead would appear
    /// before the prompt.
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

    /// Pastes text, in a bracketed paste if the program has enabled that.
    pub fn paste(&self, text: &str) {
        self.ask(&["set-buffer", "--", text]);
        self.ask(&["paste-buffer", "-p", "-r", "-d"]);
    }

    /// The text of the screen now, one line each, without trailing blanks.
    pub fn shown(&self) -> String {
        let text = self.ask(&["capture-pane", "-p"]);
        self.last.replace(text.clone());
        text
    }

    /// The text of the screen with the escape sequences of colours and attributes.
    pub fn styled(&self) -> String {
        self.ask(&["capture-pane", "-p", "-e"])
    }

    /// Waits until the screen fulfils a condition, and returns its text.
    ///
    /// The text may be read in the middle of a redraw, which goes from top to bottom. So put
    /// everything that must hold at once into one condition.
    #[track_caller]
    pub fn wait_for(&self, what: &str, shows: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let text = self.shown();
            if shows(&text) {
                return text;
            }
            assert!(start.elapsed() < DEADLINE, "waited in vain for: {what}; the screen:\n{text}");
            thread::sleep(PAUSE);
        }
    }

    /// Presses keys, and waits until the screen fulfils a condition; see [`Self::wait_for`].
    #[track_caller]
    pub fn press(&self, keys: &[&str], what: &str, shows: impl Fn(&str) -> bool) -> String {
        self.keys(keys);
        self.wait_for(what, shows)
    }

    /// Presses the key that opens a prompt, and types a text instead of the suggested one.
    ///
    /// It waits for the prompt: a viewer that was not running for some milliseconds reads all keys at
    /// once, and outside of a prompt it takes many keys at once for pasted text.
    #[track_caller]
    pub fn fill(&self, key: &str, text: &str) {
        self.keys(&[key]);
        // Only a prompt shows the cursor.
        self.wait_for("a prompt", |_| {
            self.ask(&["display-message", "-p", "#{cursor_flag}"]).trim() == "1"
        });
        self.keys(&["C-u"]);
        self.text(text);
    }

    /// Closes every other screen and quits the viewer from the table.
    #[track_caller]
    pub fn quit(&self) {
        self.keys(&["1", "Escape", "q"]);
        self.wait_for_shell();
    }

    /// Waits until the first line shows the state of the watched process.
    #[track_caller]
    pub fn wait_for_status(&self, word: &str) -> String {
        self.wait_for(word, |text| {
            text.lines().next().is_some_and(|line| line.trim_end().ends_with(word))
        })
    }

    /// Waits until the count of a point exceeds `above`, which must be small enough to be shown in
    /// full.
    #[track_caller]
    pub fn wait_for_count(&self, name: &str, above: u64) -> String {
        self.wait_for(&format!("{name} to be counted"), |text| {
            row(text, name).is_some_and(|row| row.counts_above(above))
        })
    }

    /// Moves the cursor onto the row of a point. The order of rows must not change.
    #[track_caller]
    pub fn select(&self, name: &str) {
        self.keys(&["g", "g"]);
        let mut text = self.wait_for("the cursor at the top", |text| {
            rows(text).first().is_some_and(|row| row.selected) && row(text, name).is_some()
        });
        let cursor = |text: &str| rows(text).iter().position(|row| row.selected);
        let place = |text: &str| rows(text).iter().position(|row| row.name() == name);
        // One key at a time: new rows may appear in between, and the cursor stays on its point.
        while !row(&text, name).is_some_and(|row| row.selected) {
            let before = cursor(&text);
            self.keys(&[if place(&text) < before { "k" } else { "j" }]);
            text = self.wait_for("the cursor to move to the point", |text| {
                place(text).is_some() && cursor(text).is_some() && cursor(text) != before
            });
        }
    }

    /// Waits until the shell has the terminal back in its former state: with its own lines on the
    /// screen, and a cursor.
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

    /// The text that was last copied; empty if none was.
    pub fn copied(&self) -> String {
        let output = self.tmux().arg("show-buffer").output().expect("tmux starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts to copy everything that is written to the terminal to a file as well, byte by byte.
    pub fn tap(&self, file: &Path) {
        self.ask(&["pipe-pane", &format!("cat >> '{}'", file.display())]);
    }

    /// The title of the terminal.
    pub fn title(&self) -> String {
        self.ask(&["display-message", "-p", "#{pane_title}"])
    }

    /// Whether the program in the terminal has enabled the mouse.
    pub fn has_mouse(&self) -> bool {
        self.ask(&["display-message", "-p", "#{mouse_any_flag}"]).trim() == "1"
    }

    /// Closes the terminal while a program runs in it.
    pub fn take_away(&self) {
        // This fails if the terminal is closed already.
        let _ = self.tmux().arg("kill-server").output();
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        self.take_away();
    }
}

/// One row of the table of points on a screen of at least 80 columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whether the cursor is on this row.
    pub selected: bool,
    /// Whether the point is enabled.
    pub on: bool,
    /// The name, count, rate and load, as shown.
    pub cells: Vec<String>,
}

impl Row {
    /// The point's name.
    pub fn name(&self) -> &str {
        &self.cells[0]
    }

    /// Its count, as shown.
    pub fn count(&self) -> &str {
        &self.cells[1]
    }

    /// The range of true counts that the screen may show as this text. It has more than one value
    /// for a count above 999, which is shown with three digits, such as `172k`. Empty if no count
    /// is shown.
    pub fn counted(&self) -> Range<u64> {
        let shown = self.count();
        let (digits, factor) = match shown.char_indices().last() {
            Some((at, 'k')) => (&shown[..at], 1e3),
            Some((at, 'M')) => (&shown[..at], 1e6),
            Some((at, 'G')) => (&shown[..at], 1e9),
            _ => (shown, 1.0),
        };
        let Ok(number) = digits.parse::<f64>() else { return 0..0 };
        let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        // The last digit may be rounded or cut.
        let error = if factor == 1.0 { 0.0 } else { factor / 10_f64.powi(decimals as i32) };
        let count = number * factor;
        (count - error).round() as u64..(count + error).round() as u64 + 1
    }

    /// Whether the row's count may be `count`, as far as the shown digits tell.
    pub fn counts(&self, count: u64) -> bool {
        self.counted().contains(&count)
    }

    /// Whether the row's count is certainly above `count`.
    pub fn counts_above(&self, count: u64) -> bool {
        let counted = self.counted();
        !counted.is_empty() && counted.start > count
    }
}

/// The column titles; empty if the screen shows no table.
pub fn heading(text: &str) -> &str {
    let is_heading = |line: &&str| line.contains(" Name") && line.contains("Load%");
    text.lines().find(is_heading).unwrap_or_default().trim_end()
}

/// The rows on a screen, from the top.
pub fn rows(text: &str) -> Vec<Row> {
    let heading: Vec<char> = heading(text).chars().collect();
    let place = |title: &str| {
        let title: Vec<char> = title.chars().collect();
        heading.windows(title.len()).position(|found| found == title)
    };
    // A figure ends in the column where its title ends, including the sort mark.
    let end = |title: &str| {
        let behind = place(title)? + title.chars().count();
        let is_sorted = heading.get(behind).is_some_and(|c| "▼▲v^".contains(*c));
        Some(behind + usize::from(is_sorted))
    };
    let columns = (place("Name"), end("Count"), end(" /s"), end("Load%"));
    let (Some(name), Some(count), Some(rate), Some(load)) = columns else { return Vec::new() };
    text.lines()
        .filter_map(|line| {
            let selected = line.starts_with('>');
            let rest = line.trim_start_matches(['>', ' ']);
            rest.strip_prefix(['●', '○', '!'])?;
            let on = rest.starts_with('●');
            let word = |part: String, last: bool| {
                let mut words = part.split_whitespace().map(str::to_owned);
                if last { words.next_back() } else { words.next() }
            };
            let until = |end: usize| word(line.chars().take(end).collect(), true);
            let name = word(line.chars().skip(name).collect(), false);
            let cells = [name?, until(count)?, until(rate)?, until(load)?];
            Some(Row { selected, on, cells: cells.into() })
        })
        .collect()
}

/// The row of a point.
pub fn row(text: &str, name: &str) -> Option<Row> {
    rows(text).into_iter().find(|row| row.name() == name)
}

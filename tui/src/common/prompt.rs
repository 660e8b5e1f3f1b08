//! A line of text that the user types.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler;

use pfp_read::local_time::file_stamp;
use pfp_read::snapshot::Snapshot;

/// Maximum number of characters taken from pasted text; the longest path fits.
const LONGEST_PASTE: usize = 4096;

/// The subject of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptSubject {
    /// A filter for the points.
    Filter,
    /// A new alpha for this point's EWMA.
    Alpha(u32),
    /// A time from which on this point's calls are kept.
    Limit(u32),
    /// A name to search for on the screen, with the label of the prompt.
    Find(&'static str),
    /// The moment of the recording to go to.
    Moment,
    /// The path of the snapshot to write.
    File,
    /// Words of the action to carry out.
    Command,
}

/// A line that is being typed, with its cursor.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// The subject of the prompt.
    pub asked: PromptSubject,
    /// The error in the text, if any.
    pub error: Option<String>,
    input: Input,
    /// Texts of earlier prompts, the newest last.
    earlier: Vec<String>,
    /// Index of the recalled text among the earlier ones, counted from the newest.
    recalled: usize,
}

impl PartialEq for Prompt {
    fn eq(&self, other: &Self) -> bool {
        (self.asked, self.halves()) == (other.asked, other.halves())
    }
}

impl Eq for Prompt {}

impl Prompt {
    /// A prompt with a default text and the cursor at its end.
    pub fn new(asked: PromptSubject, default: &str) -> Self {
        Self { asked, error: None, input: default.into(), earlier: Vec::new(), recalled: 0 }
    }

    /// The label of the prompt.
    pub fn label(&self) -> &'static str {
        match self.asked {
            PromptSubject::Filter => "filter",
            PromptSubject::Alpha(_) => "alpha, T/tau or off",
            PromptSubject::Limit(_) => "keep calls over 5ms, cpu 5ms or off",
            PromptSubject::Find(what) => what,
            PromptSubject::Moment => "go to 12:03:41, +34s or #34",
            PromptSubject::File => "write snapshot to",
            PromptSubject::Command => "do",
        }
    }

    /// Adds texts of earlier prompts, which [`Self::recall`] brings back.
    pub fn with_earlier(mut self, earlier: Vec<String>) -> Self {
        // Leave the current text out: recalling it first would change nothing.
        self.earlier = earlier.into_iter().filter(|it| *it != self.text()).collect();
        self.earlier.push(self.text());
        self
    }

    /// Replaces the text by the next earlier one, or by the next later one.
    pub fn recall(&mut self, earlier: bool) {
        let last = self.earlier.len().saturating_sub(1);
        self.recalled = match earlier {
            true => (self.recalled + 1).min(last),
            false => self.recalled.saturating_sub(1),
        };
        if let Some(text) = self.earlier.get(last - self.recalled) {
            self.input = text.as_str().into();
        }
    }

    /// The text typed so far.
    pub fn text(&self) -> String {
        self.input.value().to_owned()
    }

    /// The text that the prompt began with; empty if the prompt recalls no earlier texts.
    pub fn first_text(&self) -> &str {
        self.earlier.last().map_or("", String::as_str)
    }

    /// The text to the left of the cursor, and the text to its right.
    pub fn halves(&self) -> (String, String) {
        let chars = || self.input.value().chars();
        let cursor = self.input.cursor();
        (chars().take(cursor).collect(), chars().skip(cursor).collect())
    }

    /// Inserts the first line of a text at the cursor.
    pub fn paste(&mut self, text: &str) {
        let line = text.trim_start().lines().next().unwrap_or_default();
        let pasted = line.chars().filter(|c| !c.is_control()).take(LONGEST_PASTE);
        let (mut before, behind) = self.halves();
        before.extend(pasted);
        let cursor = before.chars().count();
        self.input = Input::new(before + &behind).with_cursor(cursor);
    }

    /// Edits the line the way shells do.
    pub fn key(&mut self, key: KeyEvent) {
        match (key.code, key.modifiers) {
            // `tui_input` would delete the whole line.
            (KeyCode::Char('u'), KeyModifiers::CONTROL) => {
                self.input = Input::new(self.halves().1).with_cursor(0);
            }
            _ => drop(self.input.handle_event(&Event::Key(key))),
        }
    }
}

/// The default name of a snapshot file: `NAME-PID-20261121-120000.json`, in local time.
pub fn default_file_name(snapshot: &Snapshot) -> String {
    let plain = |c: char| {
        if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }
    };
    let name: String = snapshot.process.name.chars().take(40).map(plain).collect();
    let name = name.trim_start_matches(['.', '-']);
    let name = if name.is_empty() { "snapshot" } else { name };
    let time = file_stamp(snapshot.taken_unix_ns);
    format!("{name}-{}-{time}.json", snapshot.process.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    #[test]
    fn a_prompt_edits_like_a_shell() {
        let mut prompt = Prompt::new(PromptSubject::Filter, "größe");
        let ctrl = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        for key in [KeyCode::Left, KeyCode::Left, KeyCode::Backspace, KeyCode::Char('X')] {
            prompt.key(KeyEvent::from(key));
        }
        assert_eq!(prompt.text(), "grXße");
        assert_eq!(prompt.halves(), ("grX".into(), "ße".into()));
        prompt.key(KeyEvent::from(KeyCode::Delete));
        prompt.key(ctrl('u'));
        assert_eq!(prompt.text(), "e");
        prompt.key(KeyEvent::from(KeyCode::End));
        prompt.key(KeyEvent::from(KeyCode::Delete));
        prompt.key(ctrl('a'));
        prompt.key(ctrl('k'));
        prompt.key(KeyEvent::from(KeyCode::Backspace));
        prompt.key(KeyEvent::new(KeyCode::Char('x'), KeyModifiers::ALT));
        assert_eq!(prompt.text(), "");
    }

    #[test]
    fn default_names_are_plain_file_names() {
        let mut snapshot = Synthetic::new().poll().unwrap();
        let name = default_file_name(&snapshot);
        assert!(name.starts_with("my_app-4711-2025") && name.ends_with(".json"), "{name}");
        snapshot.process.name = "../../etc/pass wd".into();
        assert!(default_file_name(&snapshot).starts_with("_.._etc_pass_wd-4711-"));
        snapshot.process.name = String::new();
        assert!(default_file_name(&snapshot).starts_with("snapshot-4711-"));
    }
}

//! A line of text that the user types.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::snapshot::Snapshot;

/// The line and the cursor in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// What it asks for.
    pub label: &'static str,
    text: Vec<char>,
    cursor: usize,
}

impl Prompt {
    /// A prompt with a default, the cursor behind it.
    pub fn new(label: &'static str, default: &str) -> Self {
        let text: Vec<char> = default.chars().collect();
        Self { label, cursor: text.len(), text }
    }

    /// What has been typed.
    pub fn text(&self) -> String {
        self.text.iter().collect()
    }

    /// What stands before and behind the cursor.
    pub fn halves(&self) -> (String, String) {
        let (before, behind) = self.text.split_at(self.cursor);
        (before.iter().collect(), behind.iter().collect())
    }

    /// Edits the line the way shells do.
    pub fn key(&mut self, key: KeyEvent) {
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('u') if ctrl => drop(self.text.drain(..std::mem::take(&mut self.cursor))),
            KeyCode::Char('k') if ctrl => self.text.truncate(self.cursor),
            KeyCode::Char('a') if ctrl => self.cursor = 0,
            KeyCode::Char('e') if ctrl => self.cursor = self.text.len(),
            KeyCode::Char(c) if !ctrl => {
                self.text.insert(self.cursor, c);
                self.cursor += 1;
            }
            KeyCode::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.text.remove(self.cursor);
            }
            KeyCode::Delete if self.cursor < self.text.len() => drop(self.text.remove(self.cursor)),
            KeyCode::Left => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right => self.cursor = (self.cursor + 1).min(self.text.len()),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.text.len(),
            _ => {}
        }
    }
}

/// The name a snapshot's file gets unless the user types another:
/// `NAME-PID-20261121-120000.json`, the time local.
pub fn default_file_name(snapshot: &Snapshot) -> String {
    let plain = |c: char| {
        if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }
    };
    let name: String = snapshot.process.name.chars().take(40).map(plain).collect();
    let name = name.trim_start_matches(['.', '-']);
    let name = if name.is_empty() { "snapshot" } else { name };
    let time = local_time(snapshot.taken_unix_ns);
    format!("{name}-{}-{time}.json", snapshot.process.pid)
}

/// Local time as `20261121-120000`.
pub(crate) fn local_time(unix_ns: u64) -> String {
    let seconds = (unix_ns / 1_000_000_000) as libc::time_t;
    // SAFETY: an all-zero `tm` is a valid value of that plain struct.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the right types.
    unsafe { libc::localtime_r(&seconds, &mut parts) };
    format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        i64::from(parts.tm_year) + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;

    #[test]
    fn it_edits_like_a_shell() {
        let mut prompt = Prompt::new("", "größe");
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

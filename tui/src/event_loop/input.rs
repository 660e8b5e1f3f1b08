//! The input of the terminal, as events. Many keys at once count as pasted text, since not every
//! terminal marks pasted text.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Minimum number of keys at once that count as pasted text: no hand types as many.
const MANY: usize = 10;
/// Maximum average time per key of pasted text: no hand types as fast.
const PER_KEY: Duration = Duration::from_micros(500);
/// Keys that arrive within this time after pasted text belong to the pasted text.
const REST: Duration = Duration::from_millis(100);
/// A busy viewer may read a typed line together with the keys typed next. With more than this many
/// keys after the Enter, the input is pasted text.
const AFTER_LINE: usize = 3;

/// The events that have arrived.
pub(super) struct Input {
    events: VecDeque<Event>,
    /// When the terminal was last read.
    read: Instant,
    /// Keys that arrive before this time belong to pasted text.
    pasted_until: Instant,
}

impl Input {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { events: VecDeque::new(), read: now, pasted_until: now }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The next event.
    pub(super) fn next(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Reads what the terminal has. `woke` is the moment at which a wait for input ended; `None` if
    /// there was input before the wait. `is_typing` says whether a line is being typed.
    pub(super) fn read(&mut self, woke: Option<Instant>, is_typing: bool) -> io::Result<()> {
        let mut new = Vec::new();
        while event::poll(Duration::ZERO)? {
            new.push(event::read()?);
        }
        let now = Instant::now();
        self.take(new, woke.unwrap_or(self.read), now, is_typing);
        self.read = now;
        Ok(())
    }

    /// Queues events that arrived between two moments, with pasted keys combined into one event.
    fn take(&mut self, new: Vec<Event>, from: Instant, until: Instant, is_typing: bool) {
        let keys = || new.iter().filter_map(pressed);
        let count = keys().count();
        let is_fast = until.saturating_duration_since(from) <= PER_KEY * count as u32;
        // Equal keys are not pasted text: while a key is held down, a slow connection delivers many
        // repetitions at once.
        let differ = keys().zip(keys().skip(1)).any(|(one, next)| one != next);
        // In a prompt, the keys of one line have the same effect as the pasted line.
        let line_end = keys().position(|key| key.code == KeyCode::Enter);
        let is_line = is_typing && line_end.is_none_or(|end| end + 1 + AFTER_LINE >= count);
        let is_pasted =
            count >= MANY && is_fast && differ && !is_line || count > 0 && from < self.pasted_until;
        if !is_pasted {
            self.events.extend(new);
            return;
        }
        self.pasted_until = until + REST;
        let text = keys().filter_map(character).collect();
        self.events.push_back(Event::Paste(text));
        self.events.extend(new.into_iter().filter(|event| pressed(event).is_none()));
    }
}

fn pressed(event: &Event) -> Option<&KeyEvent> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => Some(key),
        _ => None,
    }
}

fn character(key: &KeyEvent) -> Option<char> {
    match key.code {
        KeyCode::Char(c) if !key.modifiers.contains(KeyModifiers::CONTROL) => Some(c),
        KeyCode::Enter => Some('\n'),
        KeyCode::Tab => Some('\t'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<Event> {
        let code = |c| if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
        text.chars().map(|c| Event::Key(KeyEvent::from(code(c)))).collect()
    }

    /// The events that are made of these keys, which arrive within some milliseconds.
    fn taken(input: &mut Input, text: &str, from: Instant, ms: u64) -> Vec<Event> {
        input.take(keys(text), from, from + Duration::from_millis(ms), false);
        input.events.drain(..).collect()
    }

    #[test]
    fn keys_that_no_hand_types_are_pasted_text() {
        let mut input = Input::new();
        let now = input.read;
        let far = |seconds| now + Duration::from_secs(seconds);
        let pasted = |text: &str| vec![Event::Paste(text.to_owned())];
        assert_eq!(taken(&mut input, "git reset\nEyq", now, 5), pasted("git reset\nEyq"));
        // A key that follows at once belongs to the pasted text.
        assert_eq!(taken(&mut input, "q", now + Duration::from_millis(50), 0), pasted("q"));
        // Typed by hand: few keys, many keys while the program was busy, and one key held down.
        for (text, seconds, ms) in [
            ("q", 1, 0),
            ("/inflate\n", 2, 1),
            ("/inflate\njjk", 3, 300),
            ("jjjjjjjjjjjjjjj", 4, 0),
        ] {
            assert_eq!(taken(&mut input, text, far(seconds), ms), keys(text), "{text}");
        }
        // In a prompt, only several lines count as pasted text.
        for (text, is_typed) in
            [("tick|round", true), ("tick|round\nE", true), ("a\nEyqEyqEyq", false)]
        {
            let now = far(text.len() as u64);
            input.take(keys(text), now, now, true);
            let all: Vec<_> = input.events.drain(..).collect();
            assert_eq!(all, if is_typed { keys(text) } else { pasted(text) }, "{text}");
        }
    }

    #[test]
    fn other_events_pass_beside_pasted_text() {
        let mut input = Input::new();
        let mut events = keys("0123456789");
        events.insert(3, Event::Resize(80, 24));
        let now = input.read;
        input.take(events, now, now, false);
        let all: Vec<_> = input.events.drain(..).collect();
        assert_eq!(all, [Event::Paste("0123456789".into()), Event::Resize(80, 24)]);
    }
}

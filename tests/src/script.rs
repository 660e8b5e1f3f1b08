//! The target's side of the conversation with its test: lines of text on
//! standard output, of the form `key value value ...`, and one line of standard
//! input for each time the target waits.

use std::fmt::Display;
use std::io::{self, BufRead, Write};
use std::sync::{Mutex, PoisonError};

/// Tells the test something.
pub fn say(key: &str, values: &[&dyn Display]) {
    let mut line = String::from(key);
    for value in values {
        line.push(' ');
        line.push_str(&value.to_string());
    }
    line.push('\n');
    let mut out = io::stdout().lock();
    // A test that is gone does not listen; the target then ends by `pause`.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

/// Says that a step is reached, and waits until the test goes on. False once the
/// test has closed the other end.
pub fn pause(step: &str) -> bool {
    say(step, &[]);
    io::stdin().lock().read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0)
}

/// Does something that no other thread of this process does at the same time: a thread's
/// first regions. Whoever meets a point while another thread registers it waits less than a
/// millisecond, and then measures nothing, which is a loss where that thread has lost its CPU.
pub fn in_turn<T>(first: impl FnOnce() -> T) -> T {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    first()
}

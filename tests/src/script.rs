//! The target's side of the protocol with its test: lines on standard output, of the form `key
//! value value ...`, and one line of standard input for each time that the target waits.

use std::fmt::Display;
use std::io::{self, BufRead, Write};
use std::sync::{Mutex, PoisonError};

/// Prints a line for the test.
pub fn say(key: &str, values: &[&dyn Display]) {
    let mut line = String::from(key);
    for value in values {
        line.push(' ');
        line.push_str(&value.to_string());
    }
    line.push('\n');
    let mut out = io::stdout().lock();
    // If the test has ended, the write fails; the target then ends in `pause`.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

/// Prints that a step is reached, and waits for the test. Returns false once the test has closed
/// the pipe.
pub fn pause(step: &str) -> bool {
    say(step, &[]);
    io::stdin().lock().read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0)
}

/// Runs `first` while no other thread of this process is in this function. Use it for a thread's
/// first regions: a thread that reaches a point while another one registers it waits less than a
/// millisecond, and then measures nothing. So a region would be lost if the other thread lost its
/// CPU.
pub fn in_turn<T>(first: impl FnOnce() -> T) -> T {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    first()
}

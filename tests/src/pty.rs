//! A terminal that answers no queries; the test holds its other end.
//!
//! tmux answers the queries that a program sends to its terminal. Some serial lines, recorders and
//! terminals of continuous integration do not.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

use crate::target::wait_for;

/// A program in a terminal. Dropping it kills the program.
#[derive(Debug)]
pub struct Pty {
    child: Child,
    /// The test's end.
    test: File,
    /// The program's end, kept open so that its settings can be read after the program has ended.
    program: OwnedFd,
    written: Arc<Mutex<Vec<u8>>>,
    /// The settings before the program started.
    before: Settings,
}

/// A terminal's flags: input, output, control, local.
pub type Settings = [libc::tcflag_t; 4];

impl Pty {
    /// Starts a command in a terminal of this size, which becomes the command's controlling
    /// terminal.
    ///
    /// # Panics
    ///
    /// Panics if the system has no terminal left, or if the program does not exist.
    #[must_use]
    pub fn start(command: &mut Command, columns: u16, rows: u16) -> Self {
        let (mut test, mut program) = (-1, -1);
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the descriptors are valid for writes, the size for reads; the other pointers may
        // be null.
        let made = unsafe {
            libc::openpty(
                &raw mut test,
                &raw mut program,
                std::ptr::null_mut(),
                std::ptr::null(),
                &raw const size,
            )
        };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: `openpty` has just opened both, and no other code owns them.
        let (test, program) = unsafe { (File::from_raw_fd(test), OwnedFd::from_raw_fd(program)) };
        let before = settings(&program);
        let end = || program.try_clone().expect("a descriptor");
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color");
        let own_terminal = || {
            // SAFETY: both calls are async-signal-safe.
            let done = unsafe { libc::setsid() != -1 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0 };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: the closure makes two system calls and allocates nothing.
        let child = unsafe { command.pre_exec(own_terminal) }.spawn().expect("it starts");
        let written = Arc::new(Mutex::new(Vec::new()));
        let (into, mut from) = (Arc::clone(&written), test.try_clone().expect("a descriptor"));
        std::thread::spawn(move || {
            let mut part = [0; 1 << 16];
            while let Ok(length @ 1..) = from.read(&mut part) {
                into.lock().expect("no panic in between").extend(&part[..length]);
            }
        });
        Self { child, test, program, written, before }
    }

    /// The output written to the terminal so far, including escape sequences.
    #[must_use]
    pub fn written(&self) -> String {
        let written = self.written.lock().expect("no panic in between");
        String::from_utf8_lossy(&written).into_owned()
    }

    /// Waits until the text that has been written fulfils a condition, and returns it.
    #[track_caller]
    pub fn wait_for(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        wait_for(what, || Some(self.written()).filter(|text| is_it(text)))
    }

    /// Types these bytes.
    ///
    /// # Panics
    ///
    /// Panics if the terminal is closed, so that the bytes cannot be written.
    pub fn keys(&mut self, keys: &str) {
        self.test.write_all(keys.as_bytes()).expect("the terminal takes them");
    }

    /// Waits for the program to end, and until all that it wrote has been read.
    ///
    /// # Panics
    ///
    /// Panics if the program does not end, or the terminal cannot be written to.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        const MARK: &str = "\x1b_all is read\x1b\\";
        let ended =
            wait_for("the program to end", || self.child.try_wait().expect("it is a child"));
        // The mark is written after all output of the program.
        let program = self.program.try_clone().expect("a descriptor");
        File::from(program).write_all(MARK.as_bytes()).expect("the terminal takes it");
        self.wait_for("the mark", |text| text.ends_with(MARK));
        let mut written = self.written.lock().expect("no panic in between");
        let length = written.len() - MARK.len();
        written.truncate(length);
        ended
    }

    /// How the program ended; `None` while it runs.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is a child")
    }

    /// Id of the program.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The terminal's settings now.
    #[must_use]
    pub fn settings(&self) -> Settings {
        settings(&self.program)
    }

    /// The terminal's settings before the program started.
    #[must_use]
    pub fn settings_before(&self) -> Settings {
        self.before
    }
}

fn settings(terminal: &OwnedFd) -> Settings {
    // SAFETY: a termios holds plain numbers, for which zero is valid.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the terminal is open, and `settings` is valid for writes.
    let read = unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings) };
    assert_eq!(read, 0, "it is a terminal");
    [settings.c_iflag, settings.c_oflag, settings.c_cflag, settings.c_lflag]
}

impl Drop for Pty {
    fn drop(&mut self) {
        // Both calls fail only if the program has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

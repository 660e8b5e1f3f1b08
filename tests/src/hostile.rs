//! Runs all of a viewer's code on hostile bytes: segment or file, reader, snapshot, model, every
//! export, every screen. The result is an error message or output that is safe for a terminal.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use crossterm::event::{KeyCode, KeyEvent};
use pfp_export::{Format, Subject, rows, table};
use pfp_model::columns::Column;
use pfp_model::{Figures, Model};
use pfp_read::snapshot::Snapshot;
use pfp_read::source::{self, Candidate, Discovery, Finder, Source};
use pfp_read::units::Unit;
use pfp_top::app::App;
use pfp_top::common::Options;
use pfp_top::view;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// Keys that open every screen and use its functions: the detail with its windows, threads,
/// timeline, log, baseline and comparison, a filter, the help.
const KEYS: &str = "\r Hh\x1b2b345jk6\x1b/a\rs?\x1b1";

/// Finds no sources, because an app that watches one source needs no other.
struct Nothing;

impl Finder for Nothing {
    fn discover(&mut self) -> Result<Discovery> {
        Ok(Discovery::default())
    }

    fn attach(&mut self, _: &Candidate) -> Result<Box<dyn Source>> {
        anyhow::bail!("there is nothing")
    }
}

/// Whether a terminal would interpret a character instead of showing it.
#[must_use]
pub fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Asserts that a text has no control characters except newlines.
///
/// # Panics
///
/// Panics if the text has such a character.
pub fn assert_fit(what: &str, text: &str) {
    if let Some(at) = text.find(|c| is_control(c) && c != '\n') {
        let from = text[..at].char_indices().rev().nth(60).map_or(0, |(at, _)| at);
        let near: String = text[from..].chars().take(120).collect();
        panic!("{what} has a control character: {near:?}");
    }
}

/// Writes one snapshot in every format, without the screens. Returns the number of bytes.
///
/// # Panics
///
/// Panics if an export fails, or contains control characters.
pub fn show(snapshot: Snapshot) -> usize {
    // The process' current resource usage is not part of a written snapshot.
    let snapshot = Snapshot { usage: None, ..snapshot };
    let json = serde_json::to_string(&snapshot).expect("a snapshot can be written");
    assert_fit("a snapshot", &json);
    let again: Snapshot = serde_json::from_str(&json).expect("and read again");
    assert_eq!(again, snapshot, "what is read again is another one");
    let mut bytes = json.len();
    let mut model = Model::default();
    model.fold(snapshot.clone());
    model.fold(snapshot);
    for per_thread in [false, true] {
        let subject = Subject::new(&model, |_| true, per_thread).expect("there is a snapshot");
        for format in Format::value_variants() {
            if per_thread && !format.has_per_thread() {
                continue;
            }
            let mut out = Vec::new();
            format.write(&subject, &mut out).expect("memory can be written to");
            bytes += out.len();
            if !format.is_binary() {
                let text = String::from_utf8(out).expect("an export is text");
                // RFC 4180 ends lines with CR LF.
                assert_fit(&format!("{format:?}"), &text.replace("\r\n", "\n"));
            }
        }
    }
    let rows_of: Vec<&Figures> = model.points().iter().collect();
    let is_text = |column: &Column| column.sorts() && *column != Column::Trend;
    let columns: Vec<Column> = Column::ALL.iter().copied().filter(is_text).collect();
    let interval = Duration::from_millis(100);
    let unit = Unit::Time;
    let table = table::render(&model, &rows_of, &columns, unit, interval);
    assert_fit("the table", &table);
    let line = rows::json(&model, &rows_of, &columns, unit).expect("rows have a form");
    assert_fit("a line of rows", &line);
    let csv = rows::csv(&model, &rows_of, &columns, unit, true).expect("rows have a form");
    assert_fit("rows as CSV", &csv.replace("\r\n", "\n"));
    bytes + table.len() + line.len() + csv.len()
}

/// Shows a source on every screen, and presses the keys.
///
/// # Panics
///
/// Panics if a screen panics, or if a cell has a control character.
pub fn see(source: Box<dyn Source>, keys: &str) {
    let mut now = Instant::now();
    let mut app = App::new(Options::default(), Box::new(Nothing), now);
    app.watch(source, now);
    let mut terminal = Terminal::new(TestBackend::new(100, 30)).expect("it is only memory");
    let area = terminal.get_frame().area();
    for key in keys.chars() {
        let code = match key {
            '\r' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        app.key(KeyEvent::from(code), now);
        now += Duration::from_millis(400);
        app.poll(now);
        view::settle(&mut app, area, now);
        terminal.draw(|frame| view::draw(frame, &app)).expect("it is only memory");
        for cell in terminal.backend().buffer().content() {
            assert!(!cell.symbol().chars().any(is_control), "{:?} on a screen", cell.symbol());
        }
    }
}

/// A file in memory, to be opened by its path.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// Creates a file with these bytes.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        // SAFETY: the name is a NUL-terminated literal, and only this value owns the descriptor.
        let mut file = unsafe {
            let file = libc::memfd_create(c"pfp-test".as_ptr(), libc::MFD_CLOEXEC);
            if file < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(file)
        };
        file.write_all(bytes)?;
        Ok(Self(file))
    }

    /// The path at which it can be opened.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// Overwrites bytes of the file.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn write(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at as u64)
    }

    /// Shortens the file, or extends it with zeros.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn set_len(&self, len: usize) -> io::Result<()> {
        self.0.set_len(len as u64)
    }
}

/// Opens a file and shows it in every format, and with `screens` on every screen. Returns false if
/// it is refused; the message must be safe for a terminal.
///
/// # Panics
///
/// Panics if any of these steps does.
pub fn look_at_file(file: &Memory, screens: bool) -> bool {
    let mut source = match source::open(&file.path()) {
        Ok(source) => source,
        Err(error) => {
            assert_fit("a refusal", &format!("{error:#}"));
            return false;
        }
    };
    look_at(source.as_mut());
    if screens {
        see(source, KEYS);
    }
    true
}

/// Writes the figures of a source in every format, without the screens.
///
/// # Panics
///
/// Panics if any of these steps does.
pub fn look_at(source: &mut dyn Source) {
    match source.poll() {
        Ok(mut snapshot) => {
            source.add_records(&mut snapshot);
            show(snapshot);
        }
        Err(error) => assert_fit("a failed poll", &format!("{error:#}")),
    }
}

/// Shows a source on every screen.
///
/// # Panics
///
/// Panics if a screen does.
pub fn see_all(source: Box<dyn Source>) {
    see(source, KEYS);
}

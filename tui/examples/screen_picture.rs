//! Pictures of the real screen: the viewer watches the demo for a while, or reads a snapshot file,
//! and its screens are written as SVG. A point is then switched off, so that the comparison shows
//! its time move to the enclosing region. An animation of the demo, `live.svg`, goes through the
//! screens.
//!
//! ```text
//! cargo run --release -p pfp-top --example screen_picture -- assets
//! cargo run --release -p pfp-top --example screen_picture -- FOLDER snapshot.json
//! ```

use std::fmt::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pfp_read::source::{self, Source};
use pfp_read::text;
use pfp_remote::Machine;
use pfp_top::app::App;
use pfp_top::common::{Action, Options, Screen};
use pfp_top::view;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

/// Polls before the picture is taken: enough for a history worth showing.
const POLLS: u32 = 45;
/// The size of the screen: every column of the table, every point of the demo.
const SIZE: (u16, u16) = (122, 29);
/// Columns and lines of the animation's frames.
const FILM: (u16, u16) = (100, 22);
/// Time for which each frame is shown.
const FRAME_SECONDS: f64 = 1.2;
/// Height of the pictures of screens that have less to show.
const LOW: u16 = 16;
/// The point on the Detail screen.
const DETAIL: &str = "deflate";
/// Polls from the baseline to the comparison.
const SINCE: u32 = 25;
/// The point that is switched off in between.
const OFF: &str = "inflate";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["workload"] => Ok(pfp_demo::run_until_input_ends().map(drop)?),
        [folder] => {
            let mut demo = Demo::start()?;
            let source = demo.attach()?;
            take(Path::new(folder), source, POLLS)?;
            film(Path::new(folder), demo.attach()?)
        }
        [folder, file] => take(Path::new(folder), source::open(Path::new(file))?, 0),
        _ => bail!("usage: screen_picture FOLDER [SNAPSHOT]"),
    }
}

/// Lets the viewer poll, then writes its screens.
fn take(folder: &Path, source: Box<dyn Source>, polls: u32) -> Result<()> {
    let mut app = App::new(Options::default(), Box::new(Machine::default()), Instant::now());
    app.watch(source, Instant::now());
    watch(&mut app, polls);
    write(&folder.join("screen-points.svg"), &mut app, SIZE.1)?;
    select(&mut app, DETAIL);
    app.act(Action::Open, Instant::now());
    write(&folder.join("screen-detail.svg"), &mut app, SIZE.1)?;
    app.act(Action::Show(Screen::Threads), Instant::now());
    write(&folder.join("screen-threads.svg"), &mut app, LOW)?;
    app.act(Action::Show(Screen::Timeline), Instant::now());
    write(&folder.join("screen-timeline.svg"), &mut app, SIZE.1)?;
    app.act(Action::Show(Screen::Tree), Instant::now());
    write(&folder.join("screen-tree.svg"), &mut app, SIZE.1)?;
    app.act(Action::Flame, Instant::now());
    write(&folder.join("screen-flame.svg"), &mut app, LOW)?;
    app.act(Action::Show(Screen::Points), Instant::now());
    app.act(Action::Baseline, Instant::now());
    select(&mut app, OFF);
    app.act(Action::Toggle, Instant::now());
    watch(&mut app, polls.min(SINCE));
    app.act(Action::Show(Screen::Diff), Instant::now());
    // Move the cursor to the last row, where it does not disturb the picture.
    app.act(Action::Bottom, Instant::now());
    write(&folder.join("screen-diff.svg"), &mut app, SIZE.1)?;
    app.act(Action::Show(Screen::Log), Instant::now());
    write(&folder.join("screen-log.svg"), &mut app, LOW)
}

/// Records a walk through the screens, one frame per poll.
fn film(folder: &Path, source: Box<dyn Source>) -> Result<()> {
    const WALK: &[&[Action]] = &[
        &[],
        &[],
        &[],
        &[],
        &[Action::Down, Action::Down],
        &[Action::Open],
        &[],
        &[Action::Show(Screen::Threads)],
        &[],
        &[Action::Show(Screen::Timeline)],
        &[],
        &[Action::Show(Screen::Tree)],
        &[],
        &[Action::Flame],
        &[],
        &[Action::Show(Screen::Points)],
    ];
    let mut app = App::new(Options::default(), Box::new(Machine::default()), Instant::now());
    app.watch(source, Instant::now());
    watch(&mut app, SINCE);
    let mut frames = Vec::new();
    for actions in WALK {
        watch(&mut app, 1);
        for action in *actions {
            app.act(*action, Instant::now());
        }
        frames.push(frame(&mut app, FILM)?);
    }
    let path = folder.join("live.svg");
    std::fs::write(&path, animated(&frames)).with_context(|| path.display().to_string())
}

/// Polls whenever a poll is due.
fn watch(app: &mut App, polls: u32) {
    for _ in 0..polls {
        let Some(due) = app.next_poll() else { break };
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        app.poll(Instant::now());
    }
    app.common.toast = None;
}

/// Puts the cursor on a point, if there is one of this name.
fn select(app: &mut App, name: &str) {
    let found = app.common.model.points().iter().find(|point| point.name() == name);
    app.common.selected = found.map(|point| point.id()).or(app.common.selected);
}

fn write(path: &Path, app: &mut App, height: u16) -> Result<()> {
    let svg = still(&frame(app, (SIZE.0, height))?);
    std::fs::write(path, svg).with_context(|| path.display().to_string())
}

/// The screen as it is now. An empty one is an error.
fn frame(app: &mut App, (width, height): (u16, u16)) -> Result<Buffer> {
    app.common.toast = None;
    view::settle(app, Rect::new(0, 0, width, height), Instant::now());
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| view::draw(frame, app))?;
    let buffer = terminal.backend().buffer().clone();
    let inked = buffer.content().iter().filter(|cell| cell.symbol() != " ").count();
    if inked < usize::from(width) {
        bail!("there is next to nothing on the screen to take a picture of");
    }
    Ok(buffer)
}

/// The demo's program as a child. It ends when its standard input does.
struct Demo(Child);

impl Demo {
    fn start() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        Ok(Self(command.arg("workload").stdin(Stdio::piped()).spawn()?))
    }

    fn attach(&mut self) -> Result<Box<dyn Source>> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            let found = source::discover()?.candidates;
            if let Some(candidate) = found.into_iter().find(|c| c.pid == self.0.id()) {
                return source::attach(&candidate);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the demo did not show up")
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A cell of the picture, in pixels: the proportions of most monospaced fonts.
const CELL: (f64, f64) = (8.4, 18.0);
const FONT_SIZE: f64 = 14.0;
/// Distance from the top of a cell to the baseline of its letters.
const BASELINE: f64 = 13.5;
/// Margin around the screen.
const MARGIN: f64 = 12.0;
const FONTS: &str = "ui-monospace, 'DejaVu Sans Mono', 'Cascadia Mono', Menlo, Consolas, monospace";
const BACKGROUND: &str = "#16191f";
const FOREGROUND: &str = "#d3d7de";

/// A page of this many columns and lines. Every run of text is pinned to its columns, whatever the
/// font; blocks, bars and braille are drawn as shapes, since fonts draw them differently.
fn page(area: Rect, body: &str) -> String {
    let width = f64::from(area.width) * CELL.0 + 2.0 * MARGIN;
    let height = f64::from(area.height) * CELL.1 + 2.0 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" \
         width=\"{width:.1}\" height=\"{height:.1}\" font-family=\"{FONTS}\" \
         font-size=\"{FONT_SIZE}\" fill=\"{FOREGROUND}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g transform=\"translate({MARGIN} {MARGIN})\">\n{body}</g>\n</svg>\n"
    )
}

/// One line of the screen.
fn row(buffer: &Buffer, y: u16) -> String {
    let row: Vec<&Cell> = (0..buffer.area.width).filter_map(|x| buffer.cell((x, y))).collect();
    let mut out = String::new();
    backgrounds(&mut out, &row, y);
    glyphs(&mut out, &row, y);
    out
}

/// One screen.
fn still(buffer: &Buffer) -> String {
    page(buffer.area, &(0..buffer.area.height).map(|y| row(buffer, y)).collect::<String>())
}

/// An animation of the screens in a loop. A line that is the same in several frames is in the file
/// once; a viewer without animation shows the first frame.
fn animated(frames: &[Buffer]) -> String {
    let length = frames.len() as f64 * FRAME_SECONDS;
    let mut body = String::new();
    for y in 0..frames[0].area.height {
        let rows: Vec<String> = frames.iter().map(|frame| row(frame, y)).collect();
        for (first, content) in rows.iter().enumerate() {
            if content.is_empty() || rows[..first].contains(content) {
                continue;
            }
            let word = |place: usize| if rows[place] == *content { "visible" } else { "hidden" };
            let changes: Vec<usize> = (0..rows.len())
                .filter(|place| *place == 0 || word(*place) != word(place - 1))
                .collect();
            if changes.len() == 1 {
                body += content;
                continue;
            }
            let words: Vec<&str> = changes.iter().map(|place| word(*place)).collect();
            let times: Vec<String> = changes
                .iter()
                .map(|place| format!("{:.4}", *place as f64 / rows.len() as f64))
                .collect();
            let _ = writeln!(
                body,
                "<g visibility=\"{}\">{content}<animate attributeName=\"visibility\" \
                 values=\"{}\" keyTimes=\"{}\" calcMode=\"discrete\" dur=\"{length}s\" \
                 repeatCount=\"indefinite\"/></g>",
                word(0),
                words.join(";"),
                times.join(";")
            );
        }
    }
    page(frames[0].area, &body)
}

fn backgrounds(out: &mut String, row: &[&Cell], y: u16) {
    for (start, cells) in runs(row, |a, b| ink(a).paper == ink(b).paper) {
        let paper = ink(cells[0]).paper;
        if paper != BACKGROUND {
            // At the edges the background extends into the margin, so that it does not end right at
            // a letter.
            let left = column(start) - if start == 0 { MARGIN / 2.0 } else { 0.0 };
            let end = start + cells.len();
            let right = column(end) + if end == row.len() { MARGIN / 2.0 } else { 0.0 };
            rect(out, left, line(y), right - left, CELL.1, paper);
        }
    }
}

fn glyphs(out: &mut String, row: &[&Cell], y: u16) {
    let plain = |cell: &Cell| shape(cell).is_none();
    let full = |cell: &Cell| cell.symbol() == "█";
    let alike = |a: &Cell, b: &Cell| plain(a) && plain(b) || full(a) && full(b);
    let together = |a: &Cell, b: &Cell| alike(a, b) && ink(a) == ink(b);
    for (start, cells) in runs(row, together) {
        if let Some(character) = shape(cells[0]) {
            let ink = ink(cells[0]);
            out.push_str(if ink.dim { "<g opacity=\"0.6\">" } else { "" });
            match cells.len() {
                1 => draw(out, character, column(start), line(y), ink.colour),
                many => rect(out, column(start), line(y), column(many), CELL.1, ink.colour),
            }
            out.push_str(if ink.dim { "</g>\n" } else { "" });
            continue;
        }
        let mut skip = 0;
        let mut words = String::new();
        for cell in cells {
            // A wide character leaves an empty cell behind it.
            if skip == 0 {
                words.push_str(cell.symbol());
                skip = text::width(cell.symbol());
            }
            skip = skip.saturating_sub(1);
        }
        // Leading and trailing blanks are invisible, and some readers would drop them.
        let indent = words.len() - words.trim_start().len();
        let words = words.trim();
        if words.is_empty() {
            continue;
        }
        let (x, width) = (column(start + indent), column(text::width(words)));
        let Ink { colour, bold, dim, underlined, .. } = ink(cells[0]);
        let mut style = String::new();
        if colour != FOREGROUND {
            let _ = write!(style, " fill=\"{colour}\"");
        }
        style.push_str(if bold { " font-weight=\"bold\"" } else { "" });
        style.push_str(if dim { " opacity=\"0.6\"" } else { "" });
        style.push_str(if underlined { " text-decoration=\"underline\"" } else { "" });
        let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\" \
             lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\"{style}>{words}</text>",
            line(y) + BASELINE
        );
    }
}

/// Groups adjacent cells of the same kind; each group comes with the column of its first cell.
fn runs<'a>(
    row: &'a [&'a Cell],
    together: impl Fn(&Cell, &Cell) -> bool,
) -> impl Iterator<Item = (usize, &'a [&'a Cell])> {
    let mut start = 0;
    row.chunk_by(move |a, b| together(a, b)).map(move |cells| {
        let found = (start, cells);
        start += cells.len();
        found
    })
}

fn column(x: usize) -> f64 {
    x as f64 * CELL.0
}

fn line(y: u16) -> f64 {
    f64::from(y) * CELL.1
}

/// The look of a cell, independent of how its style was given.
#[derive(PartialEq)]
struct Ink {
    colour: &'static str,
    paper: &'static str,
    bold: bool,
    dim: bool,
    underlined: bool,
}

fn ink(cell: &Cell) -> Ink {
    let has = |modifier| cell.modifier.contains(modifier);
    let (mut colour, mut paper) = (hex(cell.fg, FOREGROUND), hex(cell.bg, BACKGROUND));
    if has(Modifier::REVERSED) {
        std::mem::swap(&mut colour, &mut paper);
    }
    Ink {
        colour,
        paper,
        bold: has(Modifier::BOLD),
        dim: has(Modifier::DIM),
        underlined: has(Modifier::UNDERLINED),
    }
}

/// The colours that the viewer uses, in the values of a common dark theme.
fn hex(colour: Color, reset: &'static str) -> &'static str {
    match colour {
        Color::Black => "#16191f",
        Color::Red => "#e5737f",
        Color::Green => "#93bf85",
        Color::Yellow => "#dfb56e",
        Color::Cyan => "#7db3c8",
        Color::Magenta => "#b58fc7",
        Color::Gray => "#a9b1bd",
        Color::LightGreen => "#b9dba8",
        Color::LightYellow => "#f0d8a0",
        Color::LightBlue => "#8fb0ea",
        Color::LightMagenta => "#dcb8ea",
        _ => reset,
    }
}

/// The character of a cell, if it is drawn as a shape and not as text.
fn shape(cell: &Cell) -> Option<char> {
    let character = cell.symbol().chars().next()?;
    let drawn = ('\u{2581}'..='\u{258f}').contains(&character)
        || ('\u{2800}'..='\u{28ff}').contains(&character)
        || "●○▲▼".contains(character);
    drawn.then_some(character)
}

fn draw(out: &mut String, character: char, x: f64, y: f64, colour: &str) {
    let (width, height) = CELL;
    match character {
        // Eighths from the bottom, then from the left.
        '\u{2581}'..='\u{2588}' => {
            let filled = f64::from(character as u32 - 0x2580) / 8.0 * height;
            rect(out, x, y + height - filled, width, filled, colour);
        }
        '\u{2589}'..='\u{258f}' => {
            let filled = f64::from(0x2590 - character as u32) / 8.0 * width;
            rect(out, x, y, filled, height, colour);
        }
        '\u{2800}'..='\u{28ff}' => {
            // The order in which Unicode numbers the dots of the two columns.
            const DOTS: [(f64, f64); 8] = [
                (0.0, 0.0),
                (0.0, 1.0),
                (0.0, 2.0),
                (1.0, 0.0),
                (1.0, 1.0),
                (1.0, 2.0),
                (0.0, 3.0),
                (1.0, 3.0),
            ];
            for (bit, (right, down)) in DOTS.into_iter().enumerate() {
                if (character as u32 - 0x2800) >> bit & 1 == 1 {
                    let (cx, cy) =
                        (x + (right + 0.5) * width / 2.0, y + (down + 0.5) * height / 4.0);
                    let _ = writeln!(
                        out,
                        "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"1.3\" fill=\"{colour}\"/>"
                    );
                }
            }
        }
        '●' | '○' => {
            let (cx, cy) = (x + width / 2.0, y + height / 2.0);
            let look = match character {
                '●' => format!("fill=\"{colour}\""),
                _ => format!("fill=\"none\" stroke=\"{colour}\""),
            };
            let _ = writeln!(out, "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3.2\" {look}/>");
        }
        _ => {
            let (left, right, middle) = (x + 1.0, x + width - 1.0, x + width / 2.0);
            let (tip, base) = if character == '▼' { (12.5, 6.0) } else { (5.5, 12.0) };
            let (tip, base) = (y + tip, y + base);
            let _ = writeln!(
                out,
                "<path d=\"M{left:.1} {base:.1}H{right:.1}L{middle:.1} {tip:.1}Z\" fill=\"{colour}\"/>"
            );
        }
    }
}

fn rect(out: &mut String, x: f64, y: f64, width: f64, height: f64, colour: &str) {
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\" \
         shape-rendering=\"crispEdges\"/>"
    );
}

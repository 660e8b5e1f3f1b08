//! The roofline: a picture with logarithmic axes and a letter for each point, above a table of the
//! points' rates.
//!
//! ```text
//!  100G              ------------------------   the highest computing rate
//!             /             b
//!   10G     /                                   the slope: memory bandwidth
//!         /  a
//!       0.1        1        10   flops per byte
//! ```

use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use ratatui::buffer::Buffer;

use crate::screens::prelude::*;
use pfp_model::roofline;
use pfp_model::roofline::columns::{KnownRoof, TABLE, dot};
use pfp_model::roofline::{Ceilings, Dot, Roof};

/// Number of lines without rows or picture: the heading, and the titles of the columns.
const HEADS: u16 = 2;
/// Minimum height of a readable picture, axis included.
const PICTURE_MIN: u16 = 6;
/// Width of the labels of the vertical axis.
const LABELS: u16 = 6;
/// Columns of the cursor and a letter.
const MARK: usize = 3;

const NO_DOTS: &str =
    " no points that report bytes and flops: scope!(\"name\", bytes = .., flops = ..)";

groups! {
    MEASURE = own {
        MeasureCeilings [Char('m')] "measure", "measure the machine's ceilings"
            + "the ceilings are its peak bandwidth and FLOP/s; measuring takes a few seconds, on \
               all CPUs";
    }
}

/// The ceilings and the points of the roofline.
#[derive(Debug)]
pub struct RooflineView {
    /// The ceilings. `None` until they are measured or read.
    pub ceilings: Option<Ceilings>,
    /// The points with bytes and floating-point operations, in the order of the rows.
    pub dots: Vec<(u32, Dot)>,
    /// Receives the ceilings while they are being measured.
    measuring: Option<Receiver<Ceilings>>,
    /// The columns, and the order of the rows: at first by time, the longest first.
    table: TableLayout,
}

impl Default for RooflineView {
    fn default() -> Self {
        Self { ceilings: None, dots: Vec::new(), measuring: None, table: TABLE.usual("time") }
    }
}

impl RooflineView {
    /// The roof of one thread, if known.
    fn roof(&self) -> KnownRoof {
        self.ceilings.as_ref().map(|ceilings| ceilings.alone.clone())
    }

    /// The points in the order of the rows.
    fn order(&self) -> Vec<u32> {
        self.dots.iter().map(|(id, _)| *id).collect()
    }

    /// Measures the machine's limits in the background.
    fn measure(&mut self, common: &mut Common) {
        if self.is_busy() {
            return;
        }
        let (sender, receiver) = channel();
        let path = common.options.ceilings.clone();
        let measure = move || {
            let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
            let ceilings = roofline::measure(threads, |_| ());
            if let Some(path) = path {
                // If saving fails, the ceilings are measured again next time.
                let _ = ceilings.save(&path);
            }
            let _ = sender.send(ceilings);
        };
        match std::thread::Builder::new().name("ceilings".into()).spawn(measure) {
            Ok(_) => {
                self.measuring = Some(receiver);
                common.say("measuring; this keeps all CPUs busy for a few seconds");
            }
            Err(error) => {
                common.notify(Severity::Error, format!("no thread can be started: {error}"))
            }
        }
    }

    /// The areas of the heading, the picture, the titles and the rows.
    fn parts(&self, body: Rect) -> [Rect; 4] {
        let room = body.height.saturating_sub(HEADS);
        let wanted = u16::try_from(self.dots.len()).unwrap_or(u16::MAX).max(1);
        let drawn = self.ceilings.is_some() && room >= PICTURE_MIN + 2;
        let rows = if drawn { wanted.min(room - PICTURE_MIN).min((room / 3).max(2)) } else { room };
        vertical![==1, ==room - rows, ==1, ==rows].areas(body)
    }
}

impl View for RooflineView {
    fn keys(&self) -> KeyMap {
        &[
            &[keys::RUN, keys::OPEN, MEASURE, keys::TO_TABLE],
            keys::CHANGE,
            &[keys::TABLE],
            keys::TAIL,
        ]
    }

    fn begin(&mut self, common: &mut Common) {
        common.scroll = Scroll::default();
        if self.ceilings.is_none()
            && let Some(path) = &common.options.ceilings
        {
            self.ceilings = Ceilings::load(path);
        }
    }

    /// Sorts the rows, or keeps their order while the cursor moves.
    fn arrange(&mut self, common: &mut Common) {
        let Some(snapshot) = common.model.snapshot() else { return };
        let rate = snapshot.clock.ticks_per_second;
        let shown = common.model.points().iter().filter(|figures| common.filter.admits(figures));
        let dots: Vec<(u32, Dot)> =
            shown.filter_map(|figures| Some((figures.id(), dot(figures, rate)?))).collect();
        let known = self.order();
        let place = |id: u32| match common.frozen_until {
            Some(_) => known.iter().position(|known| *known == id).unwrap_or(usize::MAX),
            None => 0,
        };
        let mut sorted: Vec<&(u32, Dot)> = dots.iter().collect();
        TABLE.sort(&self.table, &mut sorted, &self.roof());
        sorted.sort_by_key(|(id, _)| place(*id));
        self.dots = sorted.into_iter().cloned().collect();
        common.select_among(&self.order());
    }

    fn act(&mut self, action: Action, common: &mut Common) -> Outcome {
        if action != Action::MeasureCeilings {
            return Outcome::Pass;
        }
        self.measure(common);
        Outcome::Done
    }

    fn points(&self, _: &Common) -> Option<Vec<u32>> {
        Some(self.order())
    }

    has_table!(self.table);

    fn grid(&self, width: usize, _: &Common) -> Option<Grid> {
        Some(TABLE.fit(&self.table, MARK, width, ' ').grid)
    }

    fn copied(&self, common: &Common) -> Option<(String, String)> {
        let dot = self.dots.iter().find(|(id, _)| Some(*id) == common.selected)?;
        Some((dot.1.label.clone(), TABLE.row(&self.table, dot, &self.roof())))
    }

    fn is_busy(&self) -> bool {
        self.measuring.is_some()
    }

    /// Receives the ceilings once they are measured.
    fn tick(&mut self, common: &mut Common) {
        let Some(receiver) = &self.measuring else { return };
        match receiver.try_recv() {
            Ok(ceilings) => {
                self.ceilings = Some(ceilings);
                common.say("ceilings measured");
            }
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => {
                common.notify(Severity::Error, "measuring the ceilings failed")
            }
        }
        self.measuring = None;
    }

    fn rows(&self, body: Rect) -> Rect {
        self.parts(body)[3]
    }

    fn draw(&self, frame: &mut Frame, body: Rect, common: &Common) {
        let styles = &common.styles;
        let [top, picture, head, list] = self.parts(body);
        let heading = match &self.ceilings {
            Some(ceilings) => format!(" {}", limits_in_words(ceilings)),
            None if self.is_busy() => " measuring this machine's ceilings".into(),
            None => " press m to measure this machine's ceilings (a few seconds, all CPUs)".into(),
        };
        let heading = text::cut(&heading, body.width.into(), styles.glyphs.ellipsis);
        frame.render_widget(Line::styled(heading, styles.theme.process), top);
        if let Some(ceilings) = &self.ceilings
            && picture.height >= PICTURE_MIN
        {
            draw_picture(frame, picture, &self.dots, common.selected, ceilings, styles);
        }
        let fit = TABLE.fit(&self.table, MARK, body.width.into(), styles.glyphs.ellipsis);
        frame.render_widget(fit.heading(&self.table, styles), head);
        if self.dots.is_empty() {
            let text = view::why_no_point(common, NO_DOTS);
            return view::draw_empty(frame, list, &text, common);
        }
        let roof = self.roof();
        let seen = self.dots.iter().enumerate().skip(common.scroll.offset);
        for (area, (place, dot)) in list.rows().zip(seen) {
            let is_selected = common.selected == Some(dot.0);
            if is_selected {
                frame.buffer_mut().set_style(area, styles.theme.selected);
            }
            let cursor = if is_selected { styles.glyphs.cursor } else { ' ' };
            let mark = String::from_iter([cursor, ' ', letter(place)]);
            frame.render_widget(fit.line(mark, dot, &roof, styles), area);
        }
    }
}

/// The limits of one thread, in words.
fn limits_in_words(ceilings: &Ceilings) -> String {
    let roof = &ceilings.alone;
    let kind = roof.flops.last().map_or("", |flops| flops.kind.as_str());
    format!(
        "{}, a thread: {}B/s of memory, {}FLOP/s by {kind}, ridge at {:.1}",
        ceilings.cpu,
        units::si(roof.memory()),
        units::si(roof.peak()),
        roof.ridge()
    )
}

/// The letter of a point in the picture.
fn letter(place: usize) -> char {
    u8::try_from(place)
        .ok()
        .filter(|place| *place < 26)
        .map_or('+', |place| char::from(b'a' + place))
}

/// The ranges of the axes, as powers of ten.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
    width: u16,
    height: u16,
}

impl Axes {
    fn of(ceilings: &Ceilings, dots: &[(u32, Dot)], width: u16, height: u16) -> Self {
        let roof = &ceilings.alone;
        let (low, high) = (roof.ridge() / 64.0, roof.ridge() * 8.0);
        let xs = dots.iter().map(|(_, dot)| dot.intensity).chain([low, high]);
        let ys = dots.iter().map(|(_, dot)| dot.flops_per_second);
        let ys = ys.chain([roof.at(low), roof.peak() * 1.5]);
        Self { x: range(xs), y: range(ys), width, height }
    }

    fn intensity(&self, column: u16) -> f64 {
        let share = (f64::from(column) + 0.5) / f64::from(self.width);
        10_f64.powf(self.x.0 + share * (self.x.1 - self.x.0))
    }

    fn column(&self, intensity: f64) -> u16 {
        place(intensity, self.x, self.width)
    }

    /// The row of a rate, counted from the top.
    fn row(&self, flops: f64) -> u16 {
        self.height - 1 - place(flops, self.y, self.height)
    }
}

fn place(value: f64, (low, high): (f64, f64), cells: u16) -> u16 {
    let share = (value.log10() - low) / (high - low);
    ((share * f64::from(cells)).floor().max(0.0) as u16).min(cells - 1)
}

/// The range of all values that can be drawn.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let logs = values.map(f64::log10).filter(|log| log.is_finite());
    let (low, high) = logs
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| (low.min(log), high.max(log)));
    if low <= high { (low - 0.1, high + 0.1) } else { (0.0, 1.0) }
}

fn draw_picture(
    frame: &mut Frame,
    area: Rect,
    dots: &[(u32, Dot)],
    selected: Option<u32>,
    ceilings: &Ceilings,
    styles: &Styles,
) {
    let plot = Rect {
        x: area.x + LABELS.min(area.width),
        width: area.width.saturating_sub(LABELS + 1),
        height: area.height.saturating_sub(1),
        ..area
    };
    if plot.width < 8 || plot.height == 0 {
        return;
    }
    let axes = Axes::of(ceilings, dots, plot.width, plot.height);
    label_axes(frame, area, plot, &axes, styles);
    let roof = &ceilings.alone;
    let buffer = frame.buffer_mut();
    let put = |buffer: &mut Buffer, column: u16, row: u16, sign: char, style: Style| {
        buffer[(plot.x + column, plot.y + row)].set_char(sign).set_style(style);
    };
    for column in 0..plot.width {
        let intensity = axes.intensity(column);
        let slants = roof.bandwidths.iter().map(|bandwidth| bandwidth.bytes_per_second * intensity);
        let flats = roof.flops.iter().map(|flops| flops.per_second);
        let fastest = roof.bandwidths.iter().map(|bandwidth| bandwidth.bytes_per_second);
        let reach = fastest.fold(0.0, f64::max) * intensity;
        for flops in slants
            .filter(|flops| *flops <= roof.peak())
            .chain(flats.filter(|flops| *flops <= reach))
        {
            put(buffer, column, axes.row(flops), '.', styles.theme.faint);
        }
    }
    for column in 0..plot.width {
        let intensity = axes.intensity(column);
        let sign = if intensity < roof.ridge() { '/' } else { '-' };
        put(buffer, column, axes.row(roof.at(intensity)), sign, styles.theme.bar);
    }
    name_roofs(buffer, plot, &axes, roof, styles);
    // Draw points with the most time last, so that they are on top.
    for (place, (id, dot)) in dots.iter().enumerate().rev() {
        let style = match selected == Some(*id) {
            true => styles.theme.selected,
            false => styles.theme.key,
        };
        let (column, row) = (axes.column(dot.intensity), axes.row(dot.flops_per_second));
        put(buffer, column, row, letter(place), style);
    }
}

/// Writes the name of each roof on its line: compute roofs at the right, each memory at the start
/// of its slope. A name that would cover another one is left out.
fn name_roofs(buffer: &mut Buffer, plot: Rect, axes: &Axes, roof: &Roof, styles: &Styles) {
    let mut taken: Vec<(u16, u16, u16)> = Vec::new();
    let mut write = |column: u16, row: u16, name: &str| {
        let width = name.len() as u16;
        let is_free = taken
            .iter()
            .all(|(at, from, until)| *at != row || column >= *until || column + width <= *from);
        if is_free && column + width < plot.width {
            taken.push((row, column, column + width + 1));
            buffer.set_string(plot.x + column, plot.y + row, name, styles.theme.faint);
        }
    };
    // The unit of the vertical axis. The unit of the horizontal axis is next to that axis.
    write(0, 0, "FLOP/s");
    for flops in roof.flops.iter().rev() {
        let column = plot.width.saturating_sub(flops.kind.len() as u16 + 2);
        write(column, axes.row(flops.per_second), &flops.kind);
    }
    for bandwidth in &roof.bandwidths {
        let at = |column: u16| bandwidth.bytes_per_second * axes.intensity(column);
        let inside = (1..plot.width / 2).find(|column| axes.row(at(*column)) + 1 < plot.height);
        if let Some(column) = inside {
            write(column + 1, axes.row(at(column)), &bandwidth.level);
        }
    }
}

/// Writes powers of ten below the picture and to its left.
fn label_axes(frame: &mut Frame, area: Rect, plot: Rect, axes: &Axes, styles: &Styles) {
    let style = styles.theme.faint;
    for power in axes.y.0.ceil() as i32..=axes.y.1.floor() as i32 {
        let value = 10_f64.powi(power);
        let line = Rect { y: plot.y + axes.row(value), width: LABELS - 1, height: 1, ..area };
        frame.render_widget(Line::styled(units::si(value), style).right_aligned(), line);
    }
    let bottom = Rect { y: plot.bottom(), height: 1, ..area };
    let unit = "flops per byte";
    let mut free = bottom.x;
    for power in axes.x.0.ceil() as i32..=axes.x.1.floor() as i32 {
        let label = 10_f64.powi(power).to_string();
        let x = plot.x + axes.column(10_f64.powi(power));
        let width = label.len() as u16;
        if x >= free && x + width + unit.len() as u16 + 1 < bottom.right() {
            frame.render_widget(Span::styled(label, style), Rect { x, width, ..bottom });
            free = x + width + 1;
        }
    }
    let x = bottom.right().saturating_sub(unit.len() as u16 + 1);
    if x >= free {
        let width = unit.len() as u16;
        frame.render_widget(Span::styled(unit, style), Rect { x, width, ..bottom });
    }
}

//! The plot, with a panel for each axis. All scales begin at 0, so that a constant cost looks
//! constant.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::axes::Axis;

const SIZE: (u32, u32) = (1020, 640);
const ROWS: usize = 2;
const COLUMNS: usize = 3;

const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// Colours of the series, in order; distinguishable without colour vision, too.
const COLOURS: [RGBColor; 2] = [RGBColor(0x00, 0x5f, 0xb8), RGBColor(0x8a, 0x8a, 0x8a)];

/// Position of 0 on a logarithmic axis.
const ZERO: f64 = 1.0;

type Outcome = Result<(), Box<dyn Error>>;

pub(crate) fn draw(file: &Path, axes: &[Axis], machine: &str) -> Outcome {
    // White background, because the page may have a dark one.
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let panels = root.split_evenly((ROWS, COLUMNS));
    // All panels with nanoseconds have the same scale.
    let is_time = |axis: &&Axis| axis.figure.starts_with("ns");
    let top = axes.iter().filter(is_time).map(highest).fold(0.0, f64::max);
    for (axis, panel) in axes.iter().zip(&panels) {
        let top = if is_time(&axis) { top } else { highest(axis).max(64.0) };
        draw_axis(axis, top, panel)?;
    }
    if let (Some(panel), Some(axis)) = (panels.get(axes.len()), axes.first()) {
        draw_legend(axis, machine, panel)?;
    }
    root.present()?;
    Ok(())
}

fn highest(axis: &Axis) -> f64 {
    let figures = axis.series.iter().flat_map(|series| &series.figures);
    (figures.copied().fold(0.0, f64::max) * 1.15 / 10.0).ceil() * 10.0
}

type Panel<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_axis(axis: &Axis, top: f64, panel: &Panel<'_>) -> Outcome {
    let at: Vec<f64> = axis.at.iter().map(|at| at.max(ZERO)).collect();
    let (first, last) = (at[0], at[at.len() - 1]);
    // Margin beside the outermost values.
    let room = (last / first).powf(0.06);
    let range = (first / room..last * room).log_scale().with_key_points(at.clone());
    let mut chart = ChartBuilder::on(panel)
        .caption(axis.title, font(17).style(FontStyle::Bold).color(&INK))
        .margin(10)
        .margin_right(18)
        .x_label_area_size(46)
        .y_label_area_size(52)
        .build_cartesian_2d(range, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(font(12).color(&INK))
        .axis_desc_style(font(13).color(&INK))
        .x_desc(axis.along)
        .y_desc(axis.figure)
        .y_labels(6)
        .x_labels(at.len())
        .x_label_formatter(&|at| short(*at))
        .y_label_formatter(&|figure| format!("{figure:.0}"))
        .draw()?;
    // The first series is drawn last, so that it is on top.
    for (series, colour) in axis.series.iter().zip(COLOURS).rev() {
        let line: Vec<(f64, f64)> =
            at.iter().copied().zip(series.figures.iter().copied()).collect();
        chart.draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2)))?;
        if colour == COLOURS[0] {
            chart.draw_series(line.iter().map(|at| Circle::new(*at, 4, colour.filled())))?;
        }
    }
    Ok(())
}

fn draw_legend(axis: &Axis, machine: &str, panel: &Panel<'_>) -> Outcome {
    let mut line = 60;
    for (series, colour) in axis.series.iter().zip(COLOURS) {
        let ends = vec![(52, line), (92, line)];
        panel.draw(&PathElement::new(ends, colour.stroke_width(2)))?;
        if colour == COLOURS[0] {
            panel.draw(&Circle::new((72, line), 4, colour.filled()))?;
        }
        panel.draw(&Text::new(series.name, (104, line - 8), font(15).color(&INK)))?;
        line += 28;
    }
    for part in machine.split(", ") {
        panel.draw(&Text::new(part, (52, line + 12), font(13).color(&INK)))?;
        line += 20;
    }
    Ok(())
}

fn font(size: i32) -> FontDesc<'static> {
    FontDesc::new(FontFamily::SansSerif, f64::from(size), FontStyle::Normal)
}

/// Short form of a number, for an axis.
fn short(value: f64) -> String {
    match value {
        1e6.. => format!("{:.0} M", value / 1e6),
        1e3.. => format!("{:.0} k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

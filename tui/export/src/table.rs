//! The table as text, for `--once`, pipes and logs.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

use pfp_model::columns::Column;
use pfp_model::grid::grid_of;
use pfp_model::headline::{Headline, ended_word, rhythm};
use pfp_model::{Figures, Model, lost};
use pfp_read::text;
use pfp_read::units::{Scale, Unit};

/// Maximum length of a name; longer ones are cut.
const NAME_MAX: usize = 48;

/// The head line and the table of these points in these columns, like on the screen, with
/// `interval` between two polls.
pub fn render(
    model: &Model,
    rows: &[&Figures],
    columns: &[Column],
    unit: Unit,
    interval: Duration,
) -> String {
    let Some(snapshot) = model.snapshot() else {
        return String::new();
    };
    let scale = Scale { ticks_per_second: snapshot.clock.ticks_per_second, unit };
    let mut out = String::new();
    let head = Headline::of(snapshot, model.threads());
    let mut parts = vec![head.process, head.uptime, head.threads, head.clock];
    parts.extend([head.core, head.overhead]);
    parts.push(rhythm(model, interval));
    if head.wall_clock {
        parts.push("WALL CLOCK: figures include time off the CPU".into());
    }
    let process = &snapshot.process;
    parts.extend(process.stopped.then(|| "STOPPED".to_owned()));
    parts.extend(ended_word(process.state, process.end.as_ref()).map(Cow::into_owned));
    parts.retain(|part| !part.is_empty());
    out.push_str(&parts.join("  "));
    out.push('\n');
    for (kind, count) in lost::reported(&snapshot.losses) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "lost: {count} {}", lost::words(kind, count));
    }

    let name_width = rows
        .iter()
        .map(|row| text::width(&Column::Name.text(row, &scale)))
        .max()
        .unwrap_or(0)
        .clamp(Column::Name.title().len(), NAME_MAX);
    let width = |column: &Column| match column {
        Column::Name => name_width,
        other => other.spec().width.0,
    };
    let grid = grid_of(columns.iter().map(|column| (column.spec(), width(column))), None, '~');
    let _ = writeln!(out, "{}", grid.titles());
    let cell = |column: &Column, row: &Figures| match column {
        // Names that begin alike differ at their ends, so cut the middle.
        Column::Name => text::cut_middle(&column.text(row, &scale), name_width, '~'),
        column => column.text(row, &scale),
    };
    for row in rows {
        let _ = writeln!(out, "{}", grid.line(columns.iter().map(|column| cell(column, row))));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_model::columns::Available;
    use pfp_model::columns::sorting::Sorting;
    use pfp_read::snapshot::{ClockKind, Loss, ProcessState};
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    fn table(polls: usize, change: impl Fn(&mut Synthetic)) -> String {
        let (mut source, mut model) = (Synthetic::new(), Model::default());
        change(&mut source);
        for _ in 0..polls {
            model.fold(source.poll().unwrap());
        }
        let order = Sorting::by(Column::Load).order(model.points());
        let rows: Vec<_> = order.iter().filter_map(|id| model.point(*id)).collect();
        let mut columns = Column::shown(&Column::DEFAULT, Available::default());
        columns.retain(|column| !column.is_drawn());
        render(&model, &rows, &columns, Unit::Time, Duration::from_secs(1))
    }

    #[test]
    fn every_point_has_its_line_and_the_columns_stand_straight() {
        let text = table(3, |_| {});
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].starts_with("my_app[4711]  up 00:12:33  3 threads  rseq tsc 2.60GHz"),
            "{text}"
        );
        assert!(lines[0].ends_with("every 1 s, smoothed 5 s"), "{text}");
        assert_eq!(lines.len(), 2 + 9, "{text}");
        assert!(lines[1..].iter().all(|line| text::width(line) == lines[1].len()), "{text}");
        assert!(lines[2].contains("io.parse"), "{text}");
    }

    #[test]
    fn clock_state_and_losses_are_printed() {
        let text = table(1, |source| {
            let snapshot = source.snapshot_mut();
            snapshot.clock.kind = ClockKind::Wall;
            snapshot.process.state = ProcessState::Crashed;
            snapshot.losses[Loss::SpaceRefused] = 3;
        });
        for said in ["WALL CLOCK", "CRASHED", "lost: 3 cells", "over its lifetime"] {
            assert!(text.contains(said), "{said} in {text}");
        }
    }
}

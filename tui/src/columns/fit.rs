//! Which columns a screen has room for, and the room of each.

use super::{Column, There};

/// From this width on processes have a column.
const PROCESS_MIN: usize = 60;
/// Room that the name gets at least.
const NAME_MIN: usize = 10;
/// Names get this part of the width at least, if they need it.
const NAME_SHARE: usize = 5;
/// Room for a name at most: figures far away from their name are hard to read.
const NAME_MOST: usize = 64;
/// Columns that the bar and the trend get at most in addition to their least.
const BAR_MORE: usize = 12;
const TREND_MORE: usize = 100;

/// The columns that a screen has room for, and the room of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The columns, from left to right.
    pub columns: Vec<Column>,
    name: usize,
    bar: usize,
    trend: usize,
}

impl Fit {
    /// What of these columns fits into `width`, one blank between them, for points whose
    /// names take up to `names` columns, and of what there is. Of the default
    /// columns the least needed give way first; of others, which somebody has put in
    /// their order, the last.
    pub fn new(columns: &[Column], width: usize, names: usize, mut there: There) -> Self {
        let by_rank = columns == Column::DEFAULT;
        there.processes &= width >= PROCESS_MIN;
        let mut columns = Column::shown(columns, there);
        let least = names.clamp(NAME_MIN, NAME_MIN.max(width / NAME_SHARE));
        loop {
            let fixed: usize = columns.iter().filter_map(|column| column.width()).sum();
            let used = fixed + columns.len().saturating_sub(1);
            let room = width.saturating_sub(used);
            let mut dispensable = columns.iter().enumerate().filter(|(_, column)| !column.stays());
            let last = match by_rank {
                true => dispensable.max_by_key(|(_, column)| column.dispensable()),
                false => dispensable.next_back(),
            };
            match last {
                Some((place, _)) if room < least => drop(columns.remove(place)),
                _ => return Self::with_room(columns, room, names.max(NAME_MIN)),
            }
        }
    }

    /// What the names do not need goes to the bar and the trend.
    fn with_room(columns: Vec<Column>, room: usize, names: usize) -> Self {
        let name = room.min(names).min(NAME_MOST);
        let mut left = room - name;
        let mut width = |column: Column, most: usize| {
            let more = if columns.contains(&column) { left.min(most) } else { 0 };
            left -= more;
            column.width().unwrap_or(0) + more
        };
        let (bar, trend) = (width(Column::Bar, BAR_MORE), width(Column::Trend, TREND_MORE));
        Self { columns, name, bar, trend }
    }

    /// The room of one of them.
    pub fn width(&self, column: Column) -> usize {
        match column {
            Column::Name => self.name,
            Column::Bar => self.bar,
            Column::Trend => self.trend,
            other => other.width().unwrap_or(self.name),
        }
    }
}

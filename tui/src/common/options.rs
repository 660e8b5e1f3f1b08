//! How the user wants to watch.

use std::path::PathBuf;
use std::time::Duration;

use super::chosen_keys::ChosenKeys;
use crate::columns::Column;
use crate::columns::sorting::Sorting;
use crate::filter::Filter;
use crate::model::TAU_SECONDS;
use crate::source::{ProcessGroup, Wanted};
use crate::units::Unit;

/// How the user wants to watch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which processes to consider.
    pub wanted: Wanted,
    /// Time between two polls.
    pub interval: Duration,
    /// Time constant of the smoothed load.
    pub tau: Duration,
    /// The columns of the table, from left to right.
    pub columns: Vec<Column>,
    /// What to sort by first.
    pub sorting: Sorting,
    /// Which points to show first.
    pub filter: Filter,
    /// Leave toggled points as they are.
    pub keep: bool,
    /// What to show ticks as first.
    pub unit: Unit,
    /// Take the mouse.
    pub mouse: bool,
    /// Leave after this many updates.
    pub updates: Option<u64>,
    /// Time between two looks while there is no process; none for that between
    /// two polls.
    pub look_every: Option<Duration>,
    /// Several processes to watch as one.
    pub group: Option<ProcessGroup>,
    /// Where the ceilings of the roofline are kept.
    pub ceilings: Option<PathBuf>,
    /// Keys in place of the usual ones.
    pub keys: ChosenKeys,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wanted: Wanted::default(),
            interval: Duration::from_secs(1),
            tau: Duration::from_secs_f64(TAU_SECONDS),
            columns: Column::DEFAULT.to_vec(),
            sorting: Sorting::by(Column::Load),
            filter: Filter::default(),
            keep: false,
            unit: Unit::Time,
            mouse: true,
            updates: None,
            look_every: None,
            group: None,
            ceilings: None,
            keys: ChosenKeys::default(),
        }
    }
}

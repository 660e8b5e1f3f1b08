//! The user's options for watching a process.

use std::path::PathBuf;
use std::time::Duration;

use super::chosen_keys::ChosenKeys;
use pfp_model::TAU_SECONDS;
use pfp_model::columns::Column;
use pfp_model::columns::sorting::Sorting;
use pfp_model::filter::Filter;
use pfp_read::source::{ProcessGroup, Wanted};
use pfp_read::units::Unit;

/// The user's options for watching a process.
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
    /// The initial sorting.
    pub sorting: Sorting,
    /// The initial filter.
    pub filter: Filter,
    /// Whether toggled points stay as they are when the viewer leaves.
    pub keep: bool,
    /// The initial unit for ticks.
    pub unit: Unit,
    /// Whether to capture the mouse.
    pub mouse: bool,
    /// Number of updates after which the viewer exits. `None` for no limit.
    pub updates: Option<u64>,
    /// Time between two looks for a process while none is watched. `None` to use the poll interval.
    pub look_every: Option<Duration>,
    /// Several processes to watch as one.
    pub group: Option<ProcessGroup>,
    /// File with the saved ceilings of the roofline.
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

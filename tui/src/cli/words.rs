//! Names on the command line and in the settings file, for types of crates that know neither.

use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use pfp_model::columns::Column;
use pfp_read::units::Unit;

/// A [`Unit`], as options and settings name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum UnitName {
    /// Seconds and parts of them.
    Time,
    /// Ticks of the process's clock.
    Cycles,
}

impl From<UnitName> for Unit {
    fn from(name: UnitName) -> Self {
        match name {
            UnitName::Time => Self::Time,
            UnitName::Cycles => Self::Cycles,
        }
    }
}

/// A column by which the table can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SortColumn(pub(super) Column);

impl ValueEnum for SortColumn {
    fn value_variants<'a>() -> &'a [Self] {
        static SORTABLE: LazyLock<Vec<SortColumn>> = LazyLock::new(|| {
            let sortable = Column::ALL.iter().copied().filter(|column| column.sorts());
            sortable.map(SortColumn).collect()
        });
        &SORTABLE
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.word()).help(self.0.meaning()))
    }
}

//! What is known of a column, in the form in which columns are declared.

use std::cmp::Ordering;

use crate::model::{Figures, Quantiles};
use crate::units::Scale;

/// What the cells of a column hold, and with that how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words.
    Text,
    /// A picture, of use on the screen alone.
    Picture,
    /// A share, written in per cent.
    Share,
    /// The time of one measurement, in ticks.
    Time,
    /// A sum of such times, in ticks.
    Sum,
    /// How often something happened.
    Count,
    /// A number that is written in full.
    Whole,
    /// A rate or a ratio.
    Rate,
}

/// Where a column's figure comes from.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Of(fn(&Figures) -> Option<f64>),
    Quantile(fn(Quantiles) -> u64),
}

/// All that is known of a column.
pub(super) struct Spec {
    pub(super) word: &'static str,
    /// In CSV and JSON, without the unit of times.
    pub(super) exported: &'static str,
    pub(super) title: &'static str,
    /// On the screen, with room for the sorting mark behind the title; 0 takes what is left.
    pub(super) width: usize,
    /// When room is short, the greatest goes first; 0 stays.
    pub(super) rank: u8,
    pub(super) kind: Kind,
    pub(super) value: Value,
    /// Where the kind does not say it.
    pub(super) text: Option<fn(&Figures, &Scale) -> String>,
    /// Where it is not that of the figures; its natural direction is the least first.
    pub(super) order: Option<fn(&Figures, &Figures) -> Ordering>,
    pub(super) is_summed: bool,
    pub(super) meaning: &'static str,
}

type Cell = fn(&Figures, &Scale) -> String;

impl Spec {
    pub(super) const fn new(
        word: &'static str,
        title: &'static str,
        width: usize,
        kind: Kind,
        value: fn(&Figures) -> Option<f64>,
        meaning: &'static str,
    ) -> Self {
        let value = Value::Of(value);
        let (text, order) = (None, None);
        // None of those without a rank of their own is among the columns that go by rank.
        let (exported, rank, is_summed) = (word, 12, false);
        Self { word, exported, title, width, rank, kind, value, text, order, is_summed, meaning }
    }

    pub(super) const fn quantile(
        word: &'static str,
        of: fn(Quantiles) -> u64,
        meaning: &'static str,
    ) -> Self {
        let spec = Self::new(word, word, 7, Kind::Time, |_| None, meaning);
        Self { value: Value::Quantile(of), ..spec }
    }

    pub(super) const fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    pub(super) const fn exported(self, exported: &'static str) -> Self {
        Self { exported, ..self }
    }

    pub(super) const fn text(self, text: Cell) -> Self {
        Self { text: Some(text), ..self }
    }

    pub(super) const fn order(self, order: fn(&Figures, &Figures) -> Ordering) -> Self {
        Self { order: Some(order), ..self }
    }

    pub(super) const fn summed(self) -> Self {
        Self { is_summed: true, ..self }
    }
}

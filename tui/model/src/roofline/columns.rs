//! The columns of points below a roofline.

use super::{Dot, Roof};
use crate::grid::{CellContext, Table, table};
use crate::{FLOPS, Figures};
use pfp_read::units::NONE;

/// The context in which the cells are written: the roof, if known.
pub type KnownRoof = Option<Roof>;

/// The table of points on the roofline.
pub static TABLE: Table<(u32, Dot), KnownRoof> = table! {
    (u32, Dot), KnownRoof;
    "name", "Name", 8, Text(|(_, dot), _| dot.label.clone()).left(40).stays(), "its name";
    "intensity", "FLOP/B", 7, Rate(|(_, dot), _| Some(dot.intensity)).rank(1),
        "floating-point operations per byte";
    "flops", "FLOP/s", 7, Rate(|(_, dot), _| Some(dot.flops_per_second)).rank(2),
        "floating-point operations per second of its time";
    "bytes", "B/s", 7, Rate(|(_, dot), _| Some(dot.bytes_per_second())).rank(4),
        "bytes per second of its time";
    "roof", "Roof%", 6, Share(|(_, dot), roof| Some(dot.share_of(roof.as_ref()?))).rank(3),
        "share of the machine's ceiling there";
    "below", "Below", 12, Text(limit).right().rank(5), "what bounds it";
    "time", "Time", 7, Sum(|(_, dot), _| Some(dot.seconds)).rank(6),
        "exclusive time since the reset";
};

impl CellContext for KnownRoof {}

fn limit((_, dot): &(u32, Dot), roof: &KnownRoof) -> String {
    roof.as_ref().and_then(|roof| dot.limit(roof)).unwrap_or(NONE).to_owned()
}

/// A point below the roof, if it has bytes and floating-point operations.
pub fn dot(figures: &Figures, ticks_per_second: f64) -> Option<Dot> {
    Some(Dot {
        label: figures.name(),
        intensity: figures.intensity()?,
        flops_per_second: figures.amount(FLOPS)?.per_cpu_second?,
        seconds: figures.total().exclusive as f64 / ticks_per_second,
    })
}

//! Imports that all screens use.

pub(super) use crate::common::keys::{KeyMap, groups};
pub(super) use crate::common::{Action, Common, MouseTarget, Screen, Severity, Status, keys};
pub(super) use crate::styles::{
    DrawHeading as _, DrawRows as _, Styles, chart, draw_scrolled, wrapped,
};
pub(super) use pfp_model::Figures;
pub(super) use pfp_model::filter::Filter;
pub(super) use pfp_model::grid::{Fitted, Grid, Scroll, Table, TableLayout, table};
pub(super) use pfp_read::snapshot::{PointState, ProcessState, Snapshot};
pub(super) use pfp_read::units::{NONE, Scale};
pub(super) use pfp_read::waits::WaitNeeds;
pub(super) use pfp_read::{text, units};
pub(super) use ratatui::Frame;
pub(super) use ratatui::layout::{Position, Rect};
pub(super) use ratatui::macros::{span, vertical};
pub(super) use ratatui::style::Style;
pub(super) use ratatui::text::{Line, Span};

pub(super) use super::view::{self, Outcome, View, has_table};

//! Imports that all screens use.

pub(super) use crate::common::keys::{KeyMap, groups};
pub(super) use crate::common::{Action, Common, MouseTarget, Screen, Severity, Status, keys};
pub(super) use crate::filter::Filter;
pub(super) use crate::grid::{Fitted, Grid, Scroll, Table, TableLayout, table};
pub(super) use crate::model::Figures;
pub(super) use crate::styles::{Styles, chart, draw_scrolled, wrapped};
pub(super) use pfp_read::snapshot::{PointState, ProcessState, Snapshot};
pub(super) use pfp_read::units::{NONE, Scale};
pub(super) use pfp_read::{text, units};
pub(super) use ratatui::Frame;
pub(super) use ratatui::layout::{Position, Rect};
pub(super) use ratatui::macros::{span, vertical};
pub(super) use ratatui::style::Style;
pub(super) use ratatui::text::{Line, Span};

pub(super) use super::view::{self, Outcome, View, has_table};

//! The screens. Each is a type with its state, its keys, its rows, its drawing, and its handling of
//! clicks. A new one is a file in `screens/`, its `mod` line here, and a line in the list in
//! `common/screen.rs`.
//!
//! ```text
//! keys, clicks -> App -> the screen that is shown -> Outcome -> App
//!                         |  sees and changes Common: the model, the filter, the point
//!                         |  under the cursor, the last line
//!                         draws itself from that
//! ```

mod detail;
mod diff;
mod log;
mod name;
mod picker;
mod points;
mod prelude;
mod roofline;
mod slow;
mod sums;
mod threads;
mod timeline;
mod tree;
mod view;
mod waiting;
mod waits;

pub use detail::{DetailView, LoadView};
pub use diff::DiffView;
pub use log::LogView;
pub use picker::PickerView;
pub use points::PointsView;
pub use roofline::RooflineView;
pub use slow::SlowView;
pub use threads::ThreadsView;
pub use timeline::{TimeView, TimelineView};
pub use tree::TreeView;
pub use view::{Outcome, View};
pub use waiting::WaitingView;
pub use waits::WaitsView;

use crate::common::keys::KeyMap;
use crate::common::{Screen, every_screen};

/// Declares the state of every screen.
macro_rules! declare {
    (
        tabs { $($tab:ident $field:ident $view:ty, $name:literal, $keys:tt, $help:literal;)* }
        others { $($(#[$other_doc:meta])* $other:ident $other_field:ident $other_view:ty;)* }
    ) => {
        /// The state of every screen.
        #[derive(Default)]
        pub struct Screens {
            $(#[doc = $help] pub $field: $view,)*
            $($(#[$other_doc])* pub $other_field: $other_view,)*
        }

        impl Screens {
            /// The state of a screen.
            pub fn get(&self, screen: Screen) -> &dyn View {
                match screen {
                    $(Screen::$tab => &self.$field,)*
                    $(Screen::$other => &self.$other_field,)*
                }
            }

            /// The state of a screen, mutable.
            pub fn get_mut(&mut self, screen: Screen) -> &mut dyn View {
                match screen {
                    $(Screen::$tab => &mut self.$field,)*
                    $(Screen::$other => &mut self.$other_field,)*
                }
            }

            /// The state of all screens, mutable.
            pub(crate) fn all_mut(&mut self) -> [&mut dyn View; Screen::ALL.len()] {
                [$(&mut self.$field,)* $(&mut self.$other_field,)*]
            }
        }
    };
}

impl Screens {
    /// The keys of each screen.
    pub fn key_maps() -> [(Screen, KeyMap); Screen::ALL.len()] {
        let screens = Self::default();
        Screen::ALL.map(|screen| (screen, screens.get(screen).keys()))
    }
}

every_screen!(declare);

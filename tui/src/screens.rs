//! The screens. Each is a type with its state, its keys, its rows, its drawing, and what a click on
//! it means. A new one is a file in `screens/`, a line in the list here, and a name and a key in
//! [`crate::common`].
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
mod picker;
mod points;
mod roofline;
mod sums;
mod threads;
mod timeline;
mod tree;
mod view;
mod waiting;

pub use detail::{Detail, LoadView};
pub use diff::Diff;
pub use log::LogView;
pub use picker::Picker;
pub use points::Points;
pub use roofline::Roofline;
pub use threads::Threads;
pub use timeline::{TimeView, Timeline};
pub use tree::CallTree;
pub use view::{Outcome, View};
pub use waiting::Waiting;

use crate::common::Screen;
use crate::common::keys::KeyMap;

/// Declares the state of every screen: its name, its field and its type.
macro_rules! screens {
    ($($(#[$doc:meta])* $screen:ident $field:ident $view:ty;)*) => {
        /// The state of every screen.
        #[derive(Default)]
        pub struct Screens {
            $($(#[$doc])* pub $field: $view,)*
        }

        impl Screens {
            /// One of them.
            pub fn get(&self, screen: Screen) -> &dyn View {
                match screen { $(Screen::$screen => &self.$field,)* }
            }

            /// One of them, to be changed.
            pub fn get_mut(&mut self, screen: Screen) -> &mut dyn View {
                match screen { $(Screen::$screen => &mut self.$field,)* }
            }

            /// All of them, to be changed.
            pub(crate) fn all_mut(&mut self) -> [&mut dyn View; Screen::ALL.len()] {
                [$(&mut self.$field,)*]
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

screens! {
    /// The table of points.
    Points points Points;
    /// One point in full.
    Detail detail Detail;
    /// The threads.
    Threads threads Threads;
    /// What the threads did in the last moments.
    Timeline timeline Timeline;
    /// The points beside their baseline.
    Diff diff Diff;
    /// What was noticed, and what measuring costs.
    Log log LogView;
    /// What the machine can do at most, and the points below that.
    Roofline roofline Roofline;
    /// What called what, and how much of all it took there.
    Tree tree CallTree;
    /// The processes to choose from.
    Picker picker Picker;
    /// There is no process yet; it is looked for.
    Waiting waiting Waiting;
}

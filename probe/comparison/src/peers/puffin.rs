//! puffin: `profile_scope!` with `set_scopes_on(true)`, inside a scope per frame, and `new_frame`
//! once per frame, as README and crate documentation ask; here a frame has a thousand regions. A
//! `GlobalFrameView` with its defaults receives the frames, as for puffin's own viewers: it keeps
//! the last 1,000 frames and the slowest 256.
//!
//! `set_scopes_on(false)` switches puffin off, at any time and for all scopes.

use std::cell::Cell;
use std::sync::{Once, OnceLock};

use pfp_bench::{Case, case};
use puffin::{GlobalFrameView, GlobalProfiler};

use super::in_groups;
use crate::nothing;
use crate::row::{Row, Subject};

pub(crate) fn row() -> Row {
    Row {
        name: "puffin, `profile_scope!`",
        packages: &["puffin"],
        on: Subject::Here(Case { name: "puffin", regions: 1, prepare: start, batch: frames }),
        off: Some(Subject::Here(case!("puffin, off", 1, region()))),
        switch: "all scopes, from the program (`set_scopes_on`)",
        records: "every scope with its begin and end, by frame; viewers in the program or over TCP \
                  compute figures from them",
    }
}

thread_local! {
    /// Whether this thread runs the frame loop.
    static LOOPS: Cell<bool> = const { Cell::new(false) };
}

fn start() {
    static START: Once = Once::new();
    static VIEW: OnceLock<GlobalFrameView> = OnceLock::new();
    START.call_once(|| {
        VIEW.get_or_init(GlobalFrameView::default);
        puffin::set_scopes_on(true);
        LOOPS.set(true);
    });
}

fn frames(calls: u64) {
    in_groups(calls, |regions| {
        if LOOPS.get() {
            GlobalProfiler::lock().new_frame();
        }
        puffin::profile_scope!("frame");
        for _ in 0..regions {
            region();
        }
    });
}

fn region() {
    puffin::profile_scope!("region");
    nothing();
}

//! pfp itself, as in its README: a `scope!`, without any setup.

use pfp_bench::case;

use crate::nothing;
use crate::row::{Row, Subject};

static OFF: pfp::Point = pfp::Point::new("off");

pub(crate) fn row() -> Row {
    Row {
        name: "pfp, `scope!`",
        packages: &["pfp-probe"],
        on: Subject::Here(case!("pfp", 1, on())),
        off: Some(Subject::Here(case!("pfp, off", 1, || OFF.disable(), off()))),
        switch: "each point, from the program or the viewer (`Point::disable`)",
        records: "exclusive, inclusive and off-CPU time, count, switches, extremes, variance, \
                  histogram, last records; read live by another process, also after a crash",
    }
}

/// Compiled out with `default-features = false`, as in its documentation. The case needs other
/// features of the package, so it is a separate program.
pub(crate) fn compiled_out() -> Row {
    Row {
        name: "pfp, compiled out",
        packages: &["pfp-probe"],
        on: Subject::Apart("compiled-out"),
        off: None,
        switch: "",
        records: "nothing",
    }
}

fn on() {
    pfp::scope!("on");
    nothing();
}

fn off() {
    let _guard = OFF.measure();
    nothing();
}

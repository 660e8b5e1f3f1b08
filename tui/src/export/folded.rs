//! Folded stacks, as flame graphs are made from: `process;thread;outer;inner 123`.
//!
//! The numbers are nanoseconds of exclusive time on a CPU. Those of a point and
//! thread add up to what the point took there since its last reset; how they are
//! shared out among its callers is as in the last moments, which the rings hold (see
//! `stacks`). A caller that is not known is `[unknown caller]`; threads of one name
//! have lines alike, which readers add up.
//!
//! A semicolon divides frames, so one in a name becomes a colon; control characters
//! become blanks.

use std::io::{self, Write};

use super::Subject;
use super::stacks::{Frame, Stacks};

/// What stands for callers that the rings do not hold.
pub(super) const UNKNOWN: &str = "[unknown caller]";

/// Writes the stacks.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    let stacks = Stacks::of(subject);
    let mut line = String::new();
    for (node, exclusive_ns) in &stacks.weights {
        line.clear();
        push(&mut line, &subject.snapshot().process.name);
        for frame in stacks.path(*node) {
            line.push(';');
            match frame {
                Frame::Thread(lane) => push(&mut line, &subject.thread(lane)),
                Frame::Point(id) => push(&mut line, &name(subject, id)),
                Frame::Unknown => push(&mut line, UNKNOWN),
            }
        }
        writeln!(out, "{line} {exclusive_ns}")?;
    }
    Ok(())
}

/// The name of a point, exported or only a caller of one that is.
pub(super) fn name(subject: &Subject<'_>, id: u32) -> String {
    match (subject.point(id), subject.model().point(id)) {
        (Some(shown), _) => shown.label.clone(),
        (None, Some(figures)) => figures.name(),
        (None, None) => format!("#{id}"),
    }
}

fn push(line: &mut String, name: &str) {
    line.extend(name.chars().map(|c| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    }));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::export::tracks::tests::{model, record, snapshot};
    use crate::model::Model;

    fn exported(model: &Model, passes: impl Fn(u32) -> bool) -> Vec<(String, u64)> {
        let subject = Subject::new(model, |figures| passes(figures.id()), false).unwrap();
        let mut out = Vec::new();
        write(&subject, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let parse = |line: &str| {
            let (path, weight) = line.rsplit_once(' ').unwrap();
            (path.to_owned(), weight.parse().unwrap())
        };
        text.lines().map(parse).collect()
    }

    #[test]
    fn paths_are_those_of_the_rings_and_sums_those_of_the_cells() {
        let mut snapshot = snapshot();
        // io.read is called from io.parse for 40 us, and three times as long alone.
        snapshot.records.insert(0, record(0, 2, (1000, 1120), 120, 0, 0));
        // Only of another thread are cells of it known.
        for record in &mut snapshot.records {
            record.lane = if record.lane == 0 { 1 } else { 2 };
        }
        let model = model(snapshot);
        let stacks = exported(&model, |_| true);
        let weight = |path: &str| stacks.iter().find(|(p, _)| p == path).map(|(_, w)| *w);
        let nested = weight("my_app;reader;io.parse;io.read").unwrap();
        let alone = weight("my_app;reader;io.read").unwrap();
        assert!(nested.abs_diff(alone / 3) <= 1, "{stacks:?}");
        assert!(weight("my_app;packer;lz.compress;lz.match_longest_in_the_whole_window").is_some());
        assert!(weight("my_app;packer;[unknown caller];net.wait").is_some(), "{stacks:?}");

        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (path, weight) in &stacks {
            *sums.entry(path.rsplit(';').next().unwrap()).or_default() += weight;
        }
        for figures in model.points().iter().filter(|figures| figures.is_used()) {
            // Each thread's is rounded on its own.
            let exact = figures.total().exclusive as f64 / 2.6;
            let sum = sums[figures.name().as_str()] as f64;
            assert!((sum - exact).abs() <= 0.5 * figures.lanes().count() as f64, "{sum} {exact}");
        }
    }

    #[test]
    fn a_caller_that_is_not_held_is_unknown_and_never_another() {
        let mut snapshot = snapshot();
        snapshot.records =
            vec![record(0, 3, (100, 140), 40, 2, 0), record(0, 1, (0, 50), 40, 0, 0)];
        let model = model(snapshot);
        let stacks = exported(&model, |id| id == 3);
        assert!(stacks.iter().all(|(path, _)| path.contains(";[unknown caller];io.crc")));
        assert!(!stacks.is_empty());
    }

    #[test]
    fn a_hostile_name_stays_in_its_frame() {
        let mut snapshot = snapshot();
        snapshot.points[1].name = "a;b\nc 7".into();
        let model = model(snapshot);
        let stacks = exported(&model, |id| id == 1);
        assert_eq!(stacks[0].0, "my_app;main;a:b c 7");
        assert_eq!(stacks.len(), 2);
    }
}

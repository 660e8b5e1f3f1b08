//! Folded stacks, the input of flame graph tools: `process;thread;outer;inner 123`.
//!
//! The numbers are nanoseconds of exclusive time on a CPU. For a point and thread, they add up to
//! the point's time on that thread since its last reset, open regions included if known; for a
//! point and its direct caller, they add up to the point's time inside that caller. On request, the
//! numbers are allocated bytes, which add up in the same way, without open regions. Outer frames
//! are an estimate (see [`Stacks`]). Unknown callers are `[other callers]`. Threads of the same
//! name have the same lines, which readers add up.
//!
//! A semicolon separates frames. A semicolon in a name, a control character and `%` are
//! percent-encoded byte by byte, as in URLs, so that two names never become one.

use std::io::{self, Write};

use super::escape;
use super::subject::Subject;
use pfp_model::{Frame, Stacks, WeighedBy, Weight, share_out};

/// Frame for unknown callers.
pub(super) const OTHERS: &str = "[other callers]";

/// Writes the stacks.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    let process = subject.snapshot().process.name.as_str();
    for (path, weight) in stacks(subject, subject.weighed_by) {
        let frames = path.into_iter().map(|frame| match frame {
            Frame::Thread(lane) => subject.thread(lane),
            Frame::Point(id) => name(subject, id),
            // Only samples have waits.
            Frame::Others | Frame::Wait(_) => OTHERS.to_owned(),
        });
        let frames: Vec<String> = frames.collect();
        let line = line(std::iter::once(process).chain(frames.iter().map(String::as_str)));
        writeln!(out, "{line} {weight}")?;
    }
    Ok(())
}

/// Frames, the outermost first, as a line without its number.
pub fn line<'a>(frames: impl Iterator<Item = &'a str>) -> String {
    let escaped: Vec<_> = frames.map(|frame| escape(frame, |c| c == ';')).collect();
    escaped.join(";")
}

/// The call paths with their exclusive nanoseconds, or with their allocated bytes. For a point and
/// thread, they add up to those of the point on that thread.
pub(super) fn stacks(subject: &Subject<'_>, by: WeighedBy) -> Vec<(Vec<Frame>, u64)> {
    let passes = |id| subject.point(id).is_some();
    let open = match by {
        WeighedBy::Time => subject.model().open_regions(),
        WeighedBy::AllocBytes => &[],
    };
    let stacks = Stacks::of(subject.snapshot(), by, open, passes);
    let path = |weight: &Weight| stacks.path(weight);
    let mut paths = Vec::new();
    let ends = |path: &[Frame]| (path[0], path[path.len() - 1]);
    let weights: Vec<_> = stacks.weights().iter().map(|weight| (path(weight), weight)).collect();
    for of_point in weights.chunk_by(|(one, _), (next, _)| ends(one) == ends(next)) {
        let ticks: Vec<u64> = of_point.iter().map(|(_, weight)| weight.exclusive).collect();
        let all = ticks.iter().fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
        let weights = match by {
            WeighedBy::Time => share_out(subject.whole_ns(all), &ticks),
            WeighedBy::AllocBytes => ticks,
        };
        let weighed = of_point.iter().zip(weights).filter(|(_, weight)| *weight > 0);
        paths.extend(weighed.map(|((path, _), weight)| (path.clone(), weight)));
    }
    paths
}

/// The name of a point in a stack. The point need not be exported itself: it may be the caller of
/// an exported point.
pub(super) fn name(subject: &Subject<'_>, id: u32) -> String {
    match (subject.point(id), subject.model().point(id)) {
        (Some(shown), _) => shown.label.clone(),
        (None, Some(figures)) => figures.name(),
        (None, None) => format!("#{id}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use crate::Format;
    use crate::tests::{US, snapshot, written};
    use pfp_model::Model;
    use pfp_read::snapshot::{Cell, Edge, Open, Snapshot};
    use pfp_read::source::synthetic::edge;

    fn exported(model: &Model, passes: impl Fn(u32) -> bool) -> Vec<(String, u64)> {
        let text = String::from_utf8(written(Format::Folded, model, passes)).unwrap();
        let parse = |line: &str| {
            let (path, weight) = line.rsplit_once(' ').unwrap();
            (path.to_owned(), weight.parse().unwrap())
        };
        text.lines().map(parse).collect()
    }

    /// A model with these edges on lane 0, in microseconds, and with the cells that they add up to.
    fn made(edges: &[(u32, Option<u32>, [u64; 2])], change: impl Fn(&mut Snapshot)) -> Model {
        let mut snapshot = snapshot();
        snapshot.edges.clear();
        snapshot.cells.clear();
        for (point, caller, [exclusive, inclusive]) in edges {
            let [exclusive, inclusive] = [exclusive * US, inclusive * US];
            let (point, caller) = (*point, *caller);
            snapshot.edges.push(edge(point, caller, 0, [1, exclusive, inclusive]));
            let known = snapshot.cells.iter().position(|cell| cell.point == point);
            let known = known.unwrap_or_else(|| {
                snapshot.cells.push(Arc::new(Cell { point, ..Cell::default() }));
                snapshot.cells.len() - 1
            });
            let stats = &mut Arc::make_mut(&mut snapshot.cells[known]).stats;
            stats.count += 1;
            stats.exclusive += exclusive;
            stats.inclusive += inclusive;
        }
        snapshot.cells.sort_by_key(|cell| cell.point);
        snapshot.edges.sort_by_key(Edge::key);
        change(&mut snapshot);
        Model::of(snapshot)
    }

    fn stack_lines(model: &Model) -> Vec<String> {
        let stacks = exported(model, |_| true).into_iter();
        let path = |path: String| path.strip_prefix("my_app;main;").unwrap().to_owned();
        let mut lines: Vec<_> =
            stacks.map(|(stack, ns)| format!("{} {}", path(stack), ns as f64 / 1e3)).collect();
        lines.sort();
        lines
    }

    #[test]
    fn pairs_are_exact_and_outer_frames_are_estimated() {
        // io.read is called by io.parse and by lz.compress, and calls io.crc.
        let edges = [
            (1, None, [100, 190]),
            (4, None, [50, 80]),
            (2, Some(1), [60, 90]),
            (2, Some(4), [20, 30]),
            (3, Some(2), [40, 40]),
        ];
        let expected = [
            "io.parse 100",
            "io.parse;io.read 60",
            "io.parse;io.read;io.crc 30",
            "lz.compress 50",
            "lz.compress;io.read 20",
            "lz.compress;io.read;io.crc 10",
        ];
        assert_eq!(stack_lines(&made(&edges, |_| ())), expected);
    }

    #[test]
    fn recursion_ends_and_keeps_its_pairs() {
        let edges = [
            (1, None, [10, 30]),
            (1, Some(1), [7, 0]),
            (2, Some(1), [5, 13]),
            (1, Some(2), [8, 8]),
        ];
        let lines = stack_lines(&made(&edges, |_| ()));
        let ends_with = |end: &str| {
            let found = lines.iter().filter(|line| line.rsplit_once(' ').unwrap().0.ends_with(end));
            found.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum::<f64>()
        };
        assert_eq!(ends_with("io.parse;io.parse"), 7.0, "{lines:?}");
        assert_eq!(ends_with("io.parse;io.read"), 5.0, "{lines:?}");
        assert_eq!(ends_with("io.read;io.parse"), 8.0, "{lines:?}");
        assert!(lines.contains(&"io.parse 10".to_owned()), "{lines:?}");
        assert!(lines.iter().all(|line| line.matches(';').count() <= 3), "{lines:?}");
    }

    #[test]
    fn time_without_an_edge_has_other_callers() {
        let edges = [(1, Some(2), [30, 30])];
        let more = |snapshot: &mut Snapshot| {
            let stats = &mut Arc::make_mut(&mut snapshot.cells[0]).stats;
            stats.exclusive += 12 * US;
        };
        let expected = ["[other callers];io.parse 12", "[other callers];io.read;io.parse 30"];
        assert_eq!(stack_lines(&made(&edges, more)), expected);
        // In a file without edges, all callers are unknown.
        let without = |snapshot: &mut Snapshot| snapshot.edges.clear();
        assert_eq!(stack_lines(&made(&edges, without)), ["[other callers];io.parse 30"]);
    }

    #[test]
    fn an_open_loop_encloses_its_callees() {
        // net.wait is open, and io.parse inside it. Both have been on the CPU since they began.
        let edges = [(2, Some(1), [30, 30])];
        let open = |snapshot: &mut Snapshot| {
            let now = snapshot.elapsed_ticks;
            snapshot.clock.overhead_pair = 0;
            let open = |point, us| Open { point, start: now - us * US, on_cpu: Some(us * US) };
            snapshot.lanes[0].open = vec![open(7, 100), open(1, 90)];
        };
        let expected = ["net.wait 10", "net.wait;io.parse 60", "net.wait;io.parse;io.read 30"];
        assert_eq!(stack_lines(&made(&edges, open)), expected);
    }

    #[test]
    fn sums_are_those_of_the_cells() {
        let model = Model::of(snapshot());
        let stacks = exported(&model, |_| true);
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (path, weight) in &stacks {
            *sums.entry(path.rsplit(';').next().unwrap()).or_default() += weight;
        }
        for figures in model.points().iter().filter(|figures| figures.is_used()) {
            // Each thread's time is rounded on its own.
            let exact = figures.total().exclusive as f64 / 2.6;
            let sum = sums[figures.name().as_str()] as f64;
            assert!((sum - exact).abs() <= 0.5 * figures.lanes().count() as f64, "{sum} {exact}");
        }
        let weight = |path: &str| stacks.iter().any(|(p, _)| p == path);
        assert!(weight("my_app;packer;lz.compress;lz.match_longest_in_the_whole_window"));
        assert!(weight("my_app;reader;io.parse;io.crc"), "{stacks:?}");
    }

    #[test]
    fn names_stay_in_their_frames_and_apart_from_each_other() {
        let mut snapshot = snapshot();
        let names = ["a;b\nc 7", "a:b c 7", "a%3Bb%0Ac 7", "a;b c 7"];
        for (point, name) in snapshot.points[1..].iter_mut().zip(names) {
            point.name = name.into();
        }
        let model = Model::of(snapshot);
        let stacks = exported(&model, |id| (1..=4).contains(&id));
        assert!(stacks.iter().any(|stack| stack.0 == "my_app;main;a%3Bb%0Ac 7"), "{stacks:?}");
        let of = |frame: &str| {
            let own = stacks.iter().filter(|(path, _)| path.rsplit(';').next() == Some(frame));
            own.map(|(_, ns)| ns).sum::<u64>()
        };
        let frames = ["a%3Bb%0Ac 7", "a:b c 7", "a%253Bb%250Ac 7", "a%3Bb c 7"];
        for (id, frame) in (1..).zip(frames) {
            let exact = model.point(id).unwrap().total().exclusive as f64 / 2.6;
            let found = of(frame) as f64;
            assert!((found - exact).abs() <= 3.0 && found > 0.0, "{frame}: {found} {exact}");
        }
    }
}

//! Programs that are annotated for other tools: stock packages, and programs built with the stock
//! headers. They contain no pfp; `pfp-top run` makes their runtimes load libpfp_inject.

mod found;
mod itt;
mod kokkos;
mod nvtx;
mod openmp;
mod together;

use std::path::{Path, PathBuf};

use pfp_read::files::json;
use pfp_read::snapshot::{Loss, Point, Snapshot, Stats};
use pfp_tests::c;
use pfp_tests::place::{Place, pfp_top, text};

/// The results of a program.
struct Run {
    snapshot: Snapshot,
    printed: String,
}

/// The path of a file in the folder `annotated` of this crate.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("annotated").join(name)
}

/// Runs a program below `pfp-top run`, to its end.
fn run(options: &[&str], program: &Path, arguments: &[&str]) -> Run {
    let place = Place::new();
    let (snapshot, log) = (place.path("snapshot.json"), place.path("log"));
    let mut command = place.command(pfp_top());
    command.env("PFP_INJECT_LIBRARY", c::inject()).args(["run", "--once"]);
    command.args(["-o", text(&snapshot), "--log", text(&log)]).args(options);
    let output = command.arg("--").arg(program).args(arguments).output().expect("pfp-top starts");
    let printed = std::fs::read_to_string(&log).unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{printed}");
    Run { snapshot: json::read(&snapshot).expect("what was written can be read"), printed }
}

/// The viewer's messages about a program that records nothing. The viewer exits with the program's
/// status.
fn unseen(program: &Path, arguments: &[&str]) -> String {
    let place = Place::new();
    let mut command = place.command(pfp_top());
    command.env("PFP_INJECT_LIBRARY", c::inject()).args(["run", "--once", "--log"]);
    command.arg(place.path("log")).arg("--").arg(program).args(arguments);
    let output = command.output().expect("pfp-top starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("exited without recording anything"), "{said}");
    said
}

/// The output of the program without a profiler.
fn alone(program: &Path, arguments: &[&str]) -> String {
    c::run(std::process::Command::new(program).args(arguments))
}

impl Run {
    fn point(&self, domain: &str, name: &str) -> &Point {
        let points = &self.snapshot.points;
        let found = points.iter().find(|point| point.name == name && point.file == domain);
        found.unwrap_or_else(|| {
            let all: Vec<_> = points.iter().map(|point| (&point.file, &point.name)).collect();
            panic!("no {name} in {domain}, but {all:?}")
        })
    }

    /// The sum of a point's first amount over all measurements.
    fn amount(&self, point: &Point) -> u64 {
        let cells = self.snapshot.cells.iter().filter(|cell| cell.point == point.id);
        let sums = cells.flat_map(|cell| &cell.tuples).map(|tuple| tuple.sum(0));
        u64::try_from(sums.sum::<u128>()).expect("it is not so much")
    }

    /// The figures of a name in a domain, one entry for each thread.
    fn threads(&self, domain: &str, name: &str) -> Vec<Stats> {
        self.all_of(self.point(domain, name))
    }

    /// The figures of a point, one entry for each thread.
    fn all_of(&self, point: &Point) -> Vec<Stats> {
        let cells = self.snapshot.cells.iter().filter(|cell| cell.point == point.id);
        cells.flat_map(|cell| [cell.stats.clone(), cell.retired.clone()]).collect()
    }

    fn count(&self, domain: &str, name: &str) -> u64 {
        self.threads(domain, name).iter().map(|stats| stats.count).sum()
    }

    /// Asserts that nothing was refused, mismatched or lost.
    fn lost_nothing(&self) {
        let losses = &self.snapshot.losses;
        assert_eq!(
            [Loss::BeginsMissed, Loss::BeginsRefused, Loss::MismatchedEnds]
                .map(|kind| losses[kind]),
            [0; 3]
        );
    }
}

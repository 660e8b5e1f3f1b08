//! Parallel programs in C: OpenMP's threads, each with a lane, and a job of processes, each with a
//! segment.

use std::collections::BTreeMap;

use pfp_read::files::json;
use pfp_read::snapshot::Snapshot;
use pfp_shm_layout::liveness::Liveness;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::figure;
use pfp_tests::place::{Place, count, pfp_top, text};
use pfp_tests::watch::{self, Watch};

#[test]
fn each_thread_of_openmp_is_a_lane() {
    for compiler in Compiler::all().filter(|compiler| !compiler.is_cxx()) {
        if !c::has_openmp(compiler) {
            continue;
        }
        let program = c::compile(compiler, "openmp", &["openmp.c"], Link::Static, ["-fopenmp"]);
        let place = Place::new();
        // Without this setting, a nested team has only one thread.
        let mut target = place.start_with(&program, &[], "OMP_MAX_ACTIVE_LEVELS", "2");
        let threads = target.reach("loops").all::<u64>("thread");
        assert_eq!(threads.len(), 4);
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        for point in ["iteration", "inner"].map(|name| watch::id(picture, name)) {
            for thread in &threads {
                let lane = watch::lane(picture, thread[0] as u32);
                let its = watch::cells(picture, point).filter(|cell| cell.lane == lane);
                let counts: Vec<u64> = its.map(|cell| cell.live.count).collect();
                assert_eq!(counts, [thread[1]], "{compiler:?}");
            }
        }
        assert_eq!(watch::named(picture, "iteration").count, 40_000);

        target.go();
        let said = target.reach("done");
        let (members, calls): (u64, u64) = (said.one("members"), said.one("calls"));
        let picture = watch.poll();
        assert_eq!(watch::named(picture, "team").count, 100, "{compiler:?}");
        assert_eq!((watch::named(picture, "member").count, members), (300, 300), "{compiler:?}");
        assert_eq!(watch::named(picture, "fibonacci").count, calls, "{compiler:?}");
        assert_eq!(picture.losses.mismatched_ends, 0, "{compiler:?}");
        figure(&format!("OpenMP, {}: {} lanes", compiler.name, picture.lanes.len()));
        target.end_well();
    }
}

fn viewer(place: &Place, arguments: &[&str]) -> String {
    let mut command = place.command(pfp_top());
    c::run(command.args(arguments))
}

fn snapshot(place: &Place, how: &[&str]) -> Snapshot {
    let file = place.path("snapshot.json");
    viewer(place, &[&["snapshot", "-o", text(&file), "--force"], how].concat());
    let read = json::read(&file);
    let _ = std::fs::remove_file(&file);
    read.expect("what was written can be read")
}

#[test]
fn a_job_of_processes_adds_up_and_leaves_its_launcher_alone() {
    const RANKS: u64 = 6;
    let program = c::compile(Compiler::C, "ranks", &["ranks.c"], Link::Static, [""; 0]);
    let place = Place::new();
    let mut target = place.start(&program, &["6"]);
    let said = target.reach("measured");
    let steps: BTreeMap<u32, u64> =
        said.all::<u64>("rank").iter().map(|rank| (rank[1] as u32, rank[2])).collect();
    assert_eq!(steps.len() as u64, RANKS);
    let all: u64 = steps.values().sum();

    // Each process has its own figures, and the launcher has what it measured itself.
    for (&pid, &steps) in &steps {
        let mut watch = Watch::attach_to(&place, pid);
        let picture = watch.poll();
        assert_eq!(watch::named(picture, "step").count, steps);
        assert_eq!(watch::total(picture, 1).count, steps);
    }
    let mut launcher = Watch::attach(&place, &target);
    let check_launcher = |launcher: &mut Watch| {
        let picture = launcher.poll();
        assert_eq!(watch::named(picture, "step").count, 7);
        assert_eq!(watch::total(picture, 1).count, 7);
        assert_eq!(watch::named(picture, "launch").count, RANKS);
        assert_eq!(picture.losses.mismatched_ends, 0);
    };
    check_launcher(&mut launcher);

    // The viewer shows the processes side by side, or summed.
    let sum = snapshot(&place, &["--all", "--sum"]);
    assert_eq!(count(&sum, "step"), all + 7);
    assert_eq!(count(&sum, "launch"), RANKS);
    assert_eq!(sum.points.iter().filter(|point| point.name == "step").count(), 1);
    let apart = snapshot(&place, &["--all"]);
    assert_eq!(count(&apart, "step"), all + 7);
    let rows = |text: String| text.lines().filter(|line| line.contains("step")).count() as u64;
    assert_eq!(rows(viewer(&place, &["--once", "--all", "--sum"])), 1);
    assert_eq!(rows(viewer(&place, &["--once", "--all"])), RANKS + 1);

    // The last figures of processes without an orderly exit are kept.
    target.go();
    assert_eq!(target.reach("ended").one::<u64>("crashed"), 2);
    check_launcher(&mut launcher);
    let mut left = 0;
    for entry in place.entries() {
        let Some(&steps) = steps.get(&entry.info.process.pid) else { continue };
        assert_eq!(entry.state, Liveness::Dead);
        let mut watch = Watch::open(&entry);
        assert_eq!(watch::named(watch.poll(), "step").count, steps);
        left += 1;
    }
    // Two end by _exit, one by abort and one by SIGKILL.
    assert_eq!(left, 4);
    target.end_well();
}

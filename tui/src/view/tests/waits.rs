//! Tests of the screen of waits, as text.

use super::*;
use pfp_read::waits::{
    Kind, Link, LockReport, PointReport, ReasonReport, Waiter, Waiting, WaitsReport,
};

/// A report of six threads that wait for a lock, and of one that holds it and waits for a disk.
pub(super) fn report() -> WaitsReport {
    let point = |name: &str, threads, parts: [f64; 3], reasons: &[(Kind, &str, f64)]| PointReport {
        id: None,
        name: name.into(),
        threads,
        wall_s: parts.iter().sum(),
        run_s: parts[0],
        queued_s: parts[1],
        waited_s: parts[2],
        reasons: reasons
            .iter()
            .map(|(reason, detail, share)| ReasonReport {
                reason: *reason,
                detail: (*detail).into(),
                share: *share,
                threads,
                longest_s: 1.21,
            })
            .collect(),
    };
    WaitsReport {
        seconds: 5.0,
        samples: 1_420,
        threads: 7,
        points: vec![
            point(
                "handle_request",
                6,
                [0.3, 0.2, 29.5],
                &[(Kind::Lock, "JOBS", 0.91), (Kind::Read, "tcp 10.0.0.1:5432", 0.07)],
            ),
            point("flush", 1, [0.2, 0.0, 4.8], &[(Kind::Sync, "/var/lib/app/wal.log", 0.96)]),
        ],
        locks: vec![LockReport {
            reason: Kind::Lock,
            name: "JOBS".into(),
            address: "0x55d0c8".into(),
            waits: 88,
            total_s: 27.3,
            longest_s: 1.21,
            owner: Some("worker-1".into()),
            owner_point: Some("flush".into()),
            waiters: vec![Waiter {
                thread: "worker-2".into(),
                tid: 7,
                point: "handle_request".into(),
                total_s: 4.5,
            }],
        }],
        now: vec![Waiting {
            thread: "worker 1".into(),
            tid: 4711,
            reason: "lock JOBS".into(),
            seconds: 0.0012,
            lane: Some(0),
        }],
        ..WaitsReport::default()
    }
}

/// Lets the next snapshot have this report.
fn wait_for(desk: &mut Desk, report: WaitsReport) {
    desk.made().waits = Some(Arc::new(report));
    desk.wait(1);
}

#[test]
fn the_table_of_points_says_what_holds_them_up() {
    let mut desk = desk();
    wait_for(&mut desk, report());
    let points = screen(&mut desk, false, (130, 30));
    assert!(points.contains("6 threads wait for lock JOBS: 91.0 % of handle_request"), "{points}");
    desk.press("3");
    let threads = screen(&mut desk, false, (180, 30));
    assert!(threads.contains("1.20ms lock JOBS"), "{threads}");
}

#[test]
fn a_point_has_its_waits_in_the_table_and_in_detail() {
    let mut desk = desk();
    let waiting = desk.common.order[1];
    let mut report = report();
    report.points[0].id = Some(waiting);
    wait_for(&mut desk, report);
    let table = screen(&mut desk, false, (130, 30));
    let lines: Vec<_> = table.lines().filter(|line| line.contains("91.0% lock JOBS")).collect();
    let name = desk.common.model.point(waiting).unwrap().name();
    assert!(table.contains("Waits for") && lines.len() == 1 && lines[0].contains(&name), "{table}");
    desk.common.selected = Some(waiting);
    desk.press("2");
    check("detail-waits", &screen(&mut desk, false, SIZES[1]), SIZES[1]);
    desk.made().waits = None;
    desk.wait(1);
    let table = screen(&mut desk, false, (130, 30));
    assert!(!table.contains("lock JOBS"), "{table}");
}

#[test]
fn reasons_of_waits() {
    let mut desk = desk();
    wait_for(&mut desk, report());
    desk.press("9");
    check_all("waits", &mut desk);
}

#[test]
fn a_deadlock_comes_first() {
    let mut desk = desk();
    let link = |thread: &str, point: &str, lock: &str, owner: &str| Link {
        thread: thread.into(),
        tid: 1,
        point: point.into(),
        lock: lock.into(),
        owner: Some(owner.into()),
    };
    let cycle = vec![
        link("payer", "transfer", "lock JOURNAL", "auditor"),
        link("auditor", "audit", "lock ACCOUNTS", "payer"),
    ];
    wait_for(&mut desk, WaitsReport { deadlocks: vec![cycle], ..report() });
    desk.press("9");
    check("waits-deadlock", &screen(&mut desk, false, SIZES[1]), SIZES[1]);
}

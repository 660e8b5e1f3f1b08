//! Threads that write numbered records, a reader of their rings, and threads that find no memory
//! for a ring.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use pfp_read::snapshot::Loss;
use pfp_read::source;
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find;
use pfp_tests::script::{in_turn, pause, say};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{os, own};

static STOP: AtomicBool = AtomicBool::new(false);

/// Writes two records: one of the inner region, then one of the outer.
#[inline(never)]
fn round() {
    pfp::scope!("outer");
    pfp::scope!("inner");
}

/// Threads write records until the test stops them, and each writes at least `least`.
pub(crate) fn run(threads: usize, least: u64) {
    pfp::init().ok();
    let (begin, end) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                in_turn(round);
                let mut rounds = 1;
                begin.wait();
                while 2 * rounds < least || !STOP.load(Relaxed) {
                    round();
                    rounds += 1;
                }
                say("thread", &[&os::tid(), &(2 * rounds)]);
                end.wait();
                // The thread waits here, so that it owns its lane until the test has read it.
                end.wait();
            });
        }
        begin.wait();
        pause("running");
        STOP.store(true, Relaxed);
        end.wait();
        pause("done");
        end.wait();
    });
}

/// Counts of the records that were read from a lane's ring, and the number of the next one.
#[derive(Default)]
struct Read {
    next: u64,
    delivered: u64,
    lost: u64,
    wrong: u64,
}

/// Reads the rings of a process that runs [`run`], until the test stops it, and prints the number
/// of records it read of each thread. A record counts as wrong if its fields do not match its
/// number.
pub(crate) fn drain(pid: u32) {
    let directory = Directory::for_this_process().expect("the test has made it");
    let entries = find::find(&directory).expect("it can be read").entries;
    let entry = entries.iter().find(|entry| entry.info.process.pid == pid);
    let mut watch = Watch::open(entry.expect("the program runs"));
    // The process may run another program than [`run`]; then every record counts as wrong.
    let id = |watch: &mut Watch, name: &str| {
        let found = watch.poll().points.iter().find(|point| point.name == name);
        found.map(|point| point.id)
    };
    let (outer, inner) = (id(&mut watch, "outer"), id(&mut watch, "inner"));
    let mut lanes: BTreeMap<u32, Read> = BTreeMap::new();
    let mut read_on = |watch: &Watch| {
        let from = lanes.iter().map(|(&id, read)| (id, read.next)).collect::<BTreeMap<_, _>>();
        watch.reader().drain(
            |id| from.get(&id).copied().unwrap_or_default(),
            |id, drained, records| {
                let read = lanes.entry(id).or_default();
                let first = drained.next - records.len() as u64;
                assert_eq!(read.next + drained.lost, first, "a gap that nobody counted");
                read.delivered += records.len() as u64;
                read.lost += drained.lost;
                read.next = drained.next;
                for (number, record) in (first..).zip(records) {
                    let (point, depth) =
                        if number.is_multiple_of(2) { (inner, 1) } else { (outer, 0) };
                    let right = (Some(record.point), record.depth) == (point, depth)
                        && record.exclusive <= record.span
                        && record.context == 0;
                    read.wrong += u64::from(!right);
                }
            },
        );
    };
    pause("attached");
    thread::scope(|scope| {
        scope.spawn(|| {
            pause("reading");
            STOP.store(true, Relaxed);
        });
        while !STOP.load(Relaxed) {
            read_on(&watch);
        }
    });
    read_on(&watch);
    for lane in &watch.poll().lanes {
        let read = lanes.remove(&lane.id).unwrap_or_default();
        let (tid, missed) = (lane.lane.tid, lane.errors.records_missed);
        say("lane", &[&tid, &read.delivered, &read.lost, &missed, &read.wrong]);
    }
}

/// Runs threads while the `/dev/shm` of this process has only `pages` free pages, and again with
/// more room. Prints the counts of the reader and of the viewer.
pub(crate) fn short_of_room(pages: u64) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 10_000;
    round();
    let path = "/dev/shm/filler";
    let mut filler = File::create(path).expect("there is room for a name");
    while filler.write(&[1; 4096]).is_ok_and(|written| written > 0) {}
    let filled = filler.stream_position().expect("it is a file");
    filler.set_len(filled.saturating_sub(pages * 4096)).expect("it can be made shorter");

    let (full, roomy) = (Barrier::new(THREADS as usize + 1), Barrier::new(THREADS as usize + 1));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                (0..ROUNDS).for_each(|_| round());
                full.wait();
                roomy.wait();
                (0..ROUNDS).for_each(|_| round());
            });
        }
        full.wait();
        std::fs::remove_file(path).expect("it is ours");
        drop(filler);
        roomy.wait();
    });
    // A round has two regions. One round ran first, and each thread ran its rounds twice.
    say("begins", &[&(2 + 2 * THREADS * 2 * ROUNDS)]);
    let mut watch = own::watch();
    let picture = watch.poll();
    for lane in &picture.lanes {
        let cells = picture.cells.iter().filter(|cell| cell.lane == lane.id);
        let counted: u64 = cells.map(|cell| cell.lifetime_count).sum();
        say("lane", &[&counted, &lane.written, &lane.errors.records_missed]);
    }
    let counted: u64 =
        ["outer", "inner"].map(|name| watch::named(picture, name).count).iter().sum();
    say("counted", &[&counted]);
    say("missed", &[&picture.losses.begins_missed, &picture.losses.records_missed]);

    let found = source::discover().expect("the directory can be read");
    let me = found.candidates.iter().find(|found| found.pid == std::process::id());
    let mut viewer = source::attach(me.expect("the program runs")).expect("it can be watched");
    let seen = viewer.poll().expect("it can be read").losses;
    say("viewer", &[&seen[Loss::BeginsMissed], &seen[Loss::RecordsMissed]]);
    pause("done");
}

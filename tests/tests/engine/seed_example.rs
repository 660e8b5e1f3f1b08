//! The seed example: two periodic tasks that pre-empt each other on one CPU, in Rust and in C, and
//! in C as fibres of one thread. The printed table shows their loads, and the flight recorder's
//! records of the run add up to the same totals.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pfp_shm_layout::ring::Record;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::figure;
use pfp_tests::place::Place;
use pfp_tests::stolen::{Outside, SWITCH};
use pfp_tests::target::{Target, wait_for};
use pfp_tests::watch::{self, Watch};

const EXAMPLE: &str = env!("CARGO_BIN_EXE_two_tasks");
const C_EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe/examples/c");

const PERIODS: u64 = 100;
/// Number and load of each point: the outer region and the inner one of one task, and the region of
/// the other task.
const LOADS: [(u32, Duration); 3] = [
    (2, Duration::from_millis(2)),
    (3, Duration::from_millis(4)),
    (4, Duration::from_micros(1300)),
];
/// Load of the fibres' interrupt.
const INTERRUPT: (u32, Duration) = (5, Duration::from_micros(500));

/// One line of the table.
#[derive(Debug)]
struct Row {
    id: u32,
    count: u64,
    cycles: u64,
    min: u64,
    max: u64,
    average_ms: f64,
}

impl Row {
    /// Parses `ID: 02, n=100, C=..., Cmin=..., Cmax=..., C-avg=..., Avg-T=...ms`.
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.strip_prefix("ID: ")?.split(", ");
        let id = parts.next().filter(|id| id.len() == 2)?.parse().ok()?;
        let mut value = |key: &str| parts.next()?.strip_prefix(key)?.strip_prefix('=');
        let row = Self {
            id,
            count: value("n")?.parse().ok()?,
            cycles: value("C")?.parse().ok()?,
            min: value("Cmin")?.parse().ok()?,
            max: value("Cmax")?.parse().ok()?,
            average_ms: {
                value("C-avg")?.parse::<u64>().ok()?;
                value("Avg-T")?.strip_suffix("ms")?.parse().ok()?
            },
        };
        parts.next().is_none().then_some(row)
    }
}

/// Parses `# ID: 02 computed T=...ms`: the number of a point, and the milliseconds that its load
/// took on average, by the kernel's clock with which the example ends each load.
fn computed_ms(line: &str) -> Option<(u32, f64)> {
    let (id, time) = line.strip_prefix("# ID: ")?.split_once(" computed T=")?;
    Some((id.parse().ok()?, time.strip_suffix("ms")?.parse().ok()?))
}

/// Ticks by which a record's durations may be too low. A record stores the upper 31 bits of a
/// duration, so a duration above a second or so, off-CPU time included, loses its lowest bits.
fn unsaid(record: &Record) -> u64 {
    let bits = u64::BITS - record.span.max(record.exclusive).leading_zeros();
    (1 << bits.saturating_sub(31)) - 1
}

/// Runs an example and checks its table and its segment. A measured load may differ by the share
/// `near` from the load that the example computed. The computed load is longer than planned if a
/// hypervisor stopped the example near the load's end.
fn judge(program: &Path, loads: &[(u32, Duration)], near: f64) -> Watch {
    let name = program.file_name().and_then(|name| name.to_str()).expect("it has a name");
    let place = Place::new();
    let mut target =
        Target::start(place.command(program.to_str().expect("it is plain text")).args([
            &PERIODS.to_string(),
            // With this option the example stays until its standard input ends.
            "--hold",
        ]));
    let account = Outside::of(target.pid());
    let mut watch = Watch::attach(&place, &target);
    let rows: Vec<Row> = wait_for("the table", || {
        let rows: Vec<Row> =
            target.lines_so_far().iter().filter_map(|line| Row::parse(line)).collect();
        (rows.len() == 2 + loads.len()).then_some(rows)
    });
    let stolen = account.stolen();
    let computed: Vec<(u32, f64)> = wait_for("what was computed", || {
        let computed: Vec<_> =
            target.lines_so_far().iter().filter_map(|line| computed_ms(line)).collect();
        (computed.len() == loads.len()).then_some(computed)
    });
    let ids: Vec<u32> = rows.iter().map(|row| row.id).collect();
    assert!(ids.iter().copied().eq(0..2 + loads.len() as u32), "{ids:?}");

    watch.poll();
    let records = watch.reader().records();
    let picture = watch.poll();
    for (&(id, load), &(computed_id, computed_ms)) in loads.iter().zip(&computed) {
        let row = &rows[id as usize];
        assert_eq!((row.count, computed_id), (PERIODS, id), "{row:?}");
        let load_ms = load.as_secs_f64() * 1e3;
        assert!(computed_ms >= load_ms, "point {id}: {computed_ms} ms computed of {load:?}");
        let off = row.average_ms / computed_ms - 1.0;
        let said = format!(
            "{name}, point {id}: {off:+.5} from {computed_ms} ms for {load:?}, {stolen:?} stolen"
        );
        figure(&said);
        let cells = watch::total(picture, id);
        let unknown = stolen + SWITCH * cells.switches as u32;
        let room = near + unknown.div_duration_f64(load * PERIODS as u32);
        assert!(off.abs() < room, "{said}: {row:?}");
        assert!(row.min <= row.max && row.cycles >= row.count * row.min);

        assert_eq!((cells.count, cells.exclusive), (row.count, row.cycles));
        assert_eq!((cells.min, cells.max), (row.min, row.max));
        // Lower and upper bound of each duration.
        let ring: Vec<(u64, u64)> = records
            .iter()
            .filter(|(_, record)| record.point == id)
            .map(|(_, record)| (record.exclusive, record.exclusive + unsaid(record)))
            .collect();
        assert_eq!(ring.len() as u64, cells.count, "point {id}: records in the ring");
        let least: u64 = ring.iter().map(|(least, _)| least).sum();
        let most: u64 = ring.iter().map(|(_, most)| most).sum();
        assert!((least..=most).contains(&cells.exclusive), "point {id}: {least} to {most}");
        // The ring has the durations that the example printed. The minimum excludes measurements
        // that an interruption has made too short.
        let has = |ticks| ring.iter().any(|&(least, most)| (least..=most).contains(&ticks));
        let mean = cells.exclusive / cells.count;
        let shortest = ring.iter().map(|&(least, _)| least).min();
        assert!(shortest <= Some(cells.min) && cells.min <= mean, "{row:?}");
        assert!(has(cells.min) || cells.min == mean, "{row:?}");
        let longest = ring.iter().map(|&(least, _)| least).max();
        assert!(longest <= Some(cells.max) && has(cells.max), "{row:?}");
    }
    // The regions did overlap: the tasks share one CPU, and an outer region contains an inner one.
    let (outer, inner) = (watch::total(picture, 2), watch::total(picture, 3));
    assert!(outer.inclusive > outer.exclusive + inner.exclusive - inner.exclusive / 100);
    assert!(outer.off_cpu > 0, "task 1 never pre-empted task 0");
    assert_eq!(picture.losses.mismatched_ends, 0);
    assert_eq!(picture.losses.clock_anomalies, 0);
    target.end_well();
    watch
}

/// An example in C, built by the system's default compiler; the other compilers must compile it,
/// too.
fn in_c(name: &str) -> PathBuf {
    let source = format!("{C_EXAMPLES}/{name}.c");
    for compiler in Compiler::all().filter(|compiler| !compiler.is_cxx()) {
        c::compile(compiler, name, &[&source], Link::Static, ["-pthread"]);
    }
    c::compile(Compiler::C, name, &[&source], Link::Static, ["-pthread"])
}

#[test]
fn the_table_shows_the_loads_and_the_ring_agrees() {
    judge(Path::new(EXAMPLE), &LOADS, 0.01);
}

#[test]
fn the_table_is_the_same_from_c() {
    judge(&in_c("two_tasks"), &LOADS, 0.01);
}

/// The program has a scheduler of its own for its tasks, and an interrupt. The regions of a
/// suspended task include the scheduler's work for the switch.
#[test]
fn the_table_is_the_same_from_fibres() {
    let loads: Vec<_> = LOADS.into_iter().chain([INTERRUPT]).collect();
    let mut watch = judge(&in_c("fibres"), &loads, 0.02);
    let records = watch.reader().records();
    let picture = watch.poll();
    let total = |id| watch::total(picture, id);
    // A suspended task is off the CPU during the other task and the interrupt. The interrupt does
    // not nest in either task.
    let aside = total(4).inclusive + total(5).inclusive;
    for id in [2, 3] {
        assert!(total(id).off_cpu >= aside - aside / 100, "point {id}: {:?}", total(id));
    }
    let span = total(2).inclusive as f64 / (total(2).exclusive + total(3).exclusive) as f64 - 1.0;
    assert!(span.abs() < 0.001, "{span:+.5}");
    assert_eq!(total(4).inclusive, total(4).exclusive);
    // Each task has a context of its own, which its records name.
    let contexts = |id: u32| -> BTreeSet<u32> {
        let its = records.iter().filter(|(_, record)| record.point == id);
        its.map(|(_, record)| record.context).collect()
    };
    let [outer, inner, task_1, interrupt] = [2, 3, 4, 5].map(contexts);
    assert_eq!(outer, inner);
    for its in [&outer, &task_1, &interrupt] {
        assert!(its.len() == 1 && !its.contains(&0), "{its:?}");
    }
    assert!(outer != task_1 && outer != interrupt && task_1 != interrupt);
}

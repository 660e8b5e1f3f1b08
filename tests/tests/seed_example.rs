//! The seed example: two periodic tasks that pre-empt one another on one CPU. The
//! table it prints shows their loads, and the flight recorder's account of the
//! same run adds up to the same totals.

use std::time::Duration;

use pfp_tests::figure;
use pfp_tests::target::{Place, wait_for};
use pfp_tests::watch::{self, Watch};

const EXAMPLE: &str = env!("CARGO_BIN_EXE_two_tasks");

const PERIODS: u64 = 100;
/// Points by number, with their loads: the outer region, the inner one, and the
/// other task.
const LOADS: [(u32, Duration); 3] = [
    (2, Duration::from_millis(2)),
    (3, Duration::from_millis(4)),
    (4, Duration::from_micros(1300)),
];

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
    /// `ID: 02, n=100, C=..., Cmin=..., Cmax=..., C-avg=..., Avg-T=...ms`
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

#[test]
fn the_table_shows_the_loads_and_the_ring_agrees() {
    let place = Place::new();
    let mut target = pfp_tests::target::Target::start(place.command(EXAMPLE).args([
        &PERIODS.to_string(),
        // It stays until its standard input ends.
        "--hold",
    ]));
    let mut watch = Watch::attach(&place, &target);
    let rows: Vec<Row> = wait_for("the table", || {
        let rows: Vec<Row> =
            target.lines_so_far().iter().filter_map(|line| Row::parse(line)).collect();
        (rows.len() == 5).then_some(rows)
    });
    let ids: Vec<u32> = rows.iter().map(|row| row.id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4]);

    watch.poll();
    let records = watch.reader().records();
    let picture = watch.poll();
    for (id, load) in LOADS {
        let row = &rows[id as usize];
        assert_eq!(row.count, PERIODS, "{row:?}");
        let off = row.average_ms / (load.as_secs_f64() * 1e3) - 1.0;
        figure(&format!("seed example, point {id}: {:.6} ms, {off:+.5}", row.average_ms));
        assert!(off.abs() < 0.01, "point {id}: {off:+.5} from {load:?}: {row:?}");
        assert!(row.min <= row.max && row.cycles >= row.count * row.min);

        let cells = watch::total(picture, id);
        assert_eq!((cells.count, cells.exclusive), (row.count, row.cycles));
        assert_eq!((cells.min, cells.max), (row.min, row.max));
        let ring: Vec<u64> = records
            .iter()
            .filter(|(_, record)| record.point == id)
            .map(|(_, record)| record.exclusive)
            .collect();
        assert_eq!(ring.len() as u64, cells.count, "point {id}: records in the ring");
        assert_eq!(ring.iter().sum::<u64>(), cells.exclusive, "point {id}");
        assert_eq!(ring.iter().min(), Some(&cells.min));
        assert_eq!(ring.iter().max(), Some(&cells.max));
    }
    // The two did fall over each other: the tasks share one CPU, and an outer
    // region holds an inner one.
    let (outer, inner) = (watch::total(picture, 2), watch::total(picture, 3));
    assert!(outer.inclusive > outer.exclusive + inner.exclusive - inner.exclusive / 100);
    assert!(outer.off_cpu > 0, "task 1 never pre-empted task 0");
    target.end_well();
}

//! The README's examples that have no test of their own: each runs, and the test checks its figures
//! by arithmetic without pfp.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Add, Mul, Sub};
use std::process::Command;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::stolen::Outside;
use pfp_tests::target::{Target, wait_for};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, needs_a_screen};
use serde_json::Value;

const C_EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe/examples/c");

/// Runs an example until it has printed its table. Returns its lines by the text before the colon,
/// and the milliseconds stolen from it.
fn run(
    place: &Place,
    program: &str,
    arguments: &[&str],
) -> (Target, BTreeMap<String, Vec<String>>, f64) {
    let mut target = Target::start(place.command(program).args(arguments).arg("--hold"));
    let account = Outside::of(target.pid());
    target.reach("done");
    let stolen_ms = account.stolen().as_secs_f64() * 1e3;
    // `Said` has split each line at blanks, with its first word as the key.
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, values) in target.said().lines() {
        lines.entry(key.trim_end_matches(':').to_owned()).or_default().push(values.join(" "));
    }
    (target, lines, stolen_ms)
}

fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn phases_are_counted_and_only_the_runs_averaged() {
    const RUNS: u64 = 40;
    let place = Place::new();
    let (target, lines, stolen_ms) =
        run(&place, env!("CARGO_BIN_EXE_phases"), &[&RUNS.to_string()]);
    // Evaluates the polynomial term by term.
    let value = |x: u64| -> u64 {
        let power = |n: u32| (0..n).fold(1u64, |power, _| power.wrapping_mul(x));
        (0..24u64).fold(0u64, |sum, n| sum.wrapping_add((n * n + 1).wrapping_mul(power(n as u32))))
    };
    let sum = (0..4096).fold(0u64, |sum, x| sum.wrapping_add(value(x)));
    assert_eq!(lines["sum"], [sum.to_string()]);

    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let mut own = 0;
    for (name, count) in
        [("build", 1), ("compile", 1), ("load", 1), ("run", RUNS), ("copy back", 1)]
    {
        let found = watch::named(picture, name);
        assert_eq!(found.count, count, "{name}");
        own += found.exclusive;
        let point = picture.points.iter().find(|point| point.name == name);
        let averaged = point.expect("it was found above").control.alpha().is_some();
        assert_eq!(averaged, name == "run", "{name}");
    }
    let all = numbers(&lines["all"][0]);
    let own_ms = own as f64 / picture.clock.ticks_per_second * 1e3;
    // The exclusive times of the phases add up to at most the on-CPU time that the example's timer
    // shows.
    let said = format!("{own_ms} ms of {all:?}, {stolen_ms} ms stolen");
    figure(&format!("phases: {said}"));
    assert!(all[1] <= all[0] + 0.5 && own_ms <= all[1] * 1.02 + stolen_ms, "{said}");
    assert!(own_ms >= all[1] * 0.5, "the phases are most of it: {said}");
    target.end_well();
}

/// The rows of the viewer's table for a process, by the points' names.
fn table(viewer: &mut Command, pid: u32, columns: &str) -> BTreeMap<String, Value> {
    viewer.args(["-p", &pid.to_string(), "--once", "--json", "--columns", columns]);
    let table = c::run(viewer);
    let table: Value = serde_json::from_str(&table).expect("it is JSON");
    let points = table["points"].as_array().expect("there are points");
    let name = |point: &Value| point["name"].as_str().expect("a name").to_owned();
    points.iter().map(|point| (name(point), point.clone())).collect()
}

const WORKERS: [&str; 6] =
    ["scalar", "unrolled-2", "unrolled-8", "vectorised", "vectorised-4", "pipelined"];

#[test]
fn six_workers_are_correct_and_differ_by_fractions_of_a_cycle() {
    let place = Place::new();
    let rounds = 8;
    let (target, lines, _) = run(&place, env!("CARGO_BIN_EXE_inner_loop"), &[&rounds.to_string()]);
    assert_eq!(lines["right"].len(), 6);
    assert!(lines["right"].iter().all(|line| line.ends_with(" 2096")), "{:?}", lines["right"]);
    assert_eq!(lines["live"].len(), rounds, "one line a round");
    let mut viewer = place.command(pfp_top());
    let columns = "name,count,excl,p50,items,per-item";
    let table = table(viewer.args(["--unit", "cycles"]), target.pid(), columns);
    let cycles_per_tick = numbers(&lines["cycles"][0])[0];
    // Name, and the median of cycles per element by pfp and by hand.
    let mut found: Vec<(&str, f64, f64)> = Vec::new();
    for (name, line) in WORKERS.into_iter().zip(&lines["worker"]) {
        let (worker, rest) = line.split_once(' ').expect("a name");
        let [count, _, by_hand] = numbers(rest)[..] else { panic!("{line}") };
        assert_eq!((worker, count), (name, rounds as f64 * 200.0));
        let row = &table[&format!("add:{name}")];
        assert_eq!(number(row, "count"), count);
        // The total time divided by the total number of elements.
        let each = number(row, "excl_cycles") / (count * 4096.0);
        assert!((number(row, "per_item_cycles") / each - 1.0).abs() < 1e-9, "{row}");
        found.push((name, number(row, "p50_cycles") / 4096.0 * cycles_per_tick, by_hand));
    }
    for (name, by_pfp, by_hand) in &found {
        figure(&format!("{name}: {by_pfp:.3} cycles an element, by hand {by_hand}"));
    }
    // Readings by hand alternate with regions, so that other load on the processor affects both;
    // each figure is the median of hundreds. The workers share the processors, so a worker that is
    // disturbed all the time may be wrong.
    let all = found.len();
    found.retain(|it| (it.1 / it.2 - 1.0).abs() < 0.15);
    // Without optimization, a pass is long enough to be interrupted each time.
    let least = if cfg!(debug_assertions) { 0 } else { all - 1 };
    assert!(found.len() >= least, "only these agree with what is measured by hand: {found:?}");
    // Pairs whose times by hand differ by more than a tenth of a cycle, and by more than 40 % of
    // the smaller one, have the same order by pfp.
    let mut pairs = 0;
    for a in &found {
        for b in &found {
            let apart = b.2 - a.2;
            if apart > 0.1 && apart > 0.4 * a.2 {
                assert!(b.1 > a.1, "{a:?} {b:?}");
                pairs += usize::from(apart < 1.0);
            }
        }
    }
    figure(&format!("{pairs} pairs differ by less than a cycle and have the right order"));
    if cfg!(not(debug_assertions)) {
        assert!(pairs > 0, "no two ways differ by a fraction of a cycle: {found:?}");
    }
    target.end_well();
}

/// All six workers run at once until the test has seen them.
#[test]
fn six_workers_are_watched_as_they_work() {
    let place = Place::new();
    let mut program = place.command(env!("CARGO_BIN_EXE_inner_loop"));
    let target = Target::start(program.arg("0"));
    let pid = target.pid();
    let columns = "name,count,items,per-item";
    wait_for("all six to have been at work", || {
        let output = place.pfp_top(&["-p", &pid.to_string(), "--once", "--json"]);
        let text = String::from_utf8_lossy(&output.stdout);
        // The program may not have reached its first region yet.
        let Ok(table) = serde_json::from_str::<Value>(&text) else { return false };
        let points = table["points"].as_array().expect("there are points");
        let works = |name: &str, row: &Value| {
            row["name"] == format!("add:{name}") && row["count"].as_u64() > Some(200)
        };
        WORKERS.into_iter().all(|name| points.iter().any(|row| works(name, row)))
    });
    // Elements per second and seconds per element are reciprocal.
    let points = table(&mut place.command(pfp_top()), pid, columns);
    let seconds = |name: &str| {
        let row = &points[&format!("add:{name}")];
        let each = number(row, "per_item_s");
        let found = number(row, "items_per_cpu_s") * each;
        assert!((found - 1.0).abs() < 1e-6, "{row}");
        figure(&format!("{name}, beside the others: {:.3} ns an element", each * 1e9));
        each
    };
    let each = WORKERS.map(seconds);
    // Adding four elements at a time is much faster than adding one at a time, even though the six
    // workers disturb each other.
    if cfg!(not(debug_assertions)) {
        assert!(each[3] < each[0] && each[4] < each[0], "{each:?}");
    }

    needs_a_screen!();
    let screen = place.screen(140, 30);
    screen
        .pfp_top(&format!("-p {pid} -i 0.2 --columns {columns},thr --unit cycles --sort per-item"));
    let row = |text: &str, name: &str| -> Option<Vec<String>> {
        let line = text.lines().skip(2).find(|line| line.contains(&format!("add:{name} ")))?;
        Some(line.split_whitespace().map(str::to_owned).collect())
    };
    let shows_all = |text: &str| {
        text.contains("/Item")
            && WORKERS.iter().all(|name| {
                row(text, name).is_some_and(|row| row.iter().any(|cell| cell.ends_with("cy")))
            })
    };
    let first = screen.wait_for("cycles an element of each worker", shows_all);
    screen.wait_for("all six to go on", |text| {
        shows_all(text) && WORKERS.iter().all(|name| row(text, name) != row(&first, name))
    });
    // Each worker is a thread of its own, and spends most of its time in its own point.
    screen.press(&["3"], "the six threads", |text| {
        let has = |name: &&str| {
            let of_it = format!("add:{name}");
            let its = |line: &str| line.contains(&of_it) && line.matches(*name).count() >= 2;
            text.lines().any(its)
        };
        WORKERS.iter().all(has)
    });
    screen.quit();
    target.end_well();
}

/// A number that counts the operations on it.
#[derive(Clone, Copy)]
struct Counted(f64);

thread_local! {
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

impl Counted {
    fn of(value: f64) -> Self {
        COUNTED.set(COUNTED.get() + 1);
        Self(value)
    }
}

impl From<f64> for Counted {
    fn from(value: f64) -> Self {
        Self(value)
    }
}

impl Add for Counted {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::of(self.0 + other.0)
    }
}

impl Sub for Counted {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::of(self.0 - other.0)
    }
}

impl Mul for Counted {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self::of(self.0 * other.0)
    }
}

/// A step of the Lorenz system. Terms that are equal for all states are not counted as operations.
fn lorenz_step<F>(s: [F; 3]) -> [F; 3]
where
    F: Copy + From<f64> + Add<Output = F> + Sub<Output = F> + Mul<Output = F>,
{
    const H: f64 = 0.001;
    let n = |value: f64| F::from(value);
    let slope =
        |[x, y, z]: [F; 3]| [n(10.0) * (y - x), x * (n(28.0) - z) - y, x * y - n(8.0 / 3.0) * z];
    let along = |d: [F; 3], t: f64| [0, 1, 2].map(|at| s[at] + n(t) * d[at]);
    let a = slope(s);
    let b = slope(along(a, H / 2.0));
    let c = slope(along(b, H / 2.0));
    let d = slope(along(c, H));
    [0, 1, 2].map(|at| s[at] + n(H / 6.0) * (a[at] + n(2.0) * b[at] + n(2.0) * c[at] + d[at]))
}

/// The sums, one trajectory after the other.
fn lorenz(trajectories: u32, steps: u32) -> [f64; 3] {
    let mut sum = [0.0; 3];
    for number in 0..trajectories {
        let start = [1.0 + f64::from(number) * 1e-3, 1.0, 1.0];
        let end = (0..steps).fold(start, |s, _| lorenz_step(s));
        (0..3).for_each(|at| sum[at] += end[at]);
    }
    sum
}

/// The array of threads that `pfp::show` has printed among these lines.
fn shown(lines: &BTreeMap<String, Vec<String>>) -> Vec<Value> {
    let line = lines.keys().find(|key| key.starts_with("[{")).expect("a line of JSON");
    serde_json::from_str(line).expect("it is JSON")
}

/// The calls with this label, over all threads.
fn calls<'a>(shown: &'a [Value], label: &str) -> Vec<&'a Value> {
    shown.iter().filter_map(|thread| thread[label].as_array()).flatten().collect()
}

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or_else(|| panic!("{name} is a number in {of}"))
}

fn assert_lorenz(place: &Place, program: &str, threads: u32, trajectories: u32, steps: u32) {
    let arguments = [threads, trajectories, steps].map(|number| number.to_string());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (target, lines, stolen_ms) = run(place, program, &arguments);
    let found = numbers(&lines["sum"][0]);
    for (found, expected) in found.iter().zip(lorenz(trajectories, steps)) {
        // The program sums these trajectories in another order.
        assert!((found - expected).abs() < 1e-6, "{program}: {found} instead of {expected}");
    }
    let mut watch = Watch::attach(place, &target);
    let picture = watch.poll();
    let id = watch::id(picture, "trajectory");
    // The sum over running and ended threads.
    let lanes =
        watch::cells(picture, id).filter(|cell| cell.live.count + cell.retired.count > 0).count();
    assert_eq!(lanes, threads.min(trajectories) as usize, "{program}: one lane a thread");
    assert_eq!(watch::total(picture, id).count, u64::from(trajectories));

    // The bytes and operations of a call. One step is computed with numbers that count each
    // operation.
    COUNTED.set(0);
    lorenz_step([1.0, 2.0, 3.0].map(Counted));
    let (steps, trajectories) = (u64::from(steps), u64::from(trajectories));
    let of_call = [steps * 6 * 8, steps * COUNTED.get()];
    let of_reduction = [trajectories * 3 * 8, trajectories * 3];
    let shown = shown(&lines);
    let labels = [("trajectory", of_call, lanes), ("reduction", of_reduction, 1)];
    for (label, each, threads) in labels {
        let rows = calls(&shown, label);
        assert_eq!(rows.len(), threads, "{program}: {label} has a row for each thread");
        for row in rows {
            let [bytes, flops] = ["Bytes", "Flops"].map(|name| row[name].as_u64().unwrap());
            assert_eq!([bytes, flops], each, "{program}: {label}");
            let [least, mean, most] = ["Min", "Avg", "Max"].map(|name| number(row, name));
            assert!(0.0 < least && least <= mean * 1.000_001 && mean <= most * 1.000_001, "{row}");
            let deviation = number(row, "Stddev");
            assert!(0.0 <= deviation && deviation <= most - least + 1e-9, "{row}");
        }
    }
    let rows = calls(&shown, "trajectory");
    let count: f64 = rows.iter().map(|row| number(row, "Calls")).sum();
    assert_eq!(count, trajectories as f64);
    let seconds: f64 = rows.iter().map(|row| number(row, "Calls") * number(row, "Avg")).sum();
    // The measured time is nearly all of the threads' CPU time by the kernel's account.
    let on_cpu = numbers(&lines["on_cpu_ms"][0])[0] / 1e3;
    let said = format!("{seconds} s in trajectories of {on_cpu} on a CPU, {stolen_ms} ms stolen");
    figure(&format!("{program}: {said}"));
    assert!(seconds <= on_cpu * 1.02 + stolen_ms / 1e3, "{program}: {said}");
    assert!(seconds >= on_cpu * 0.8, "{program}: {said}");

    // The viewer's rates are the amounts of all trajectories, divided by `seconds`, the time
    // measured in them.
    let mut viewer = place.command(pfp_top());
    let columns = "name,avg,min,max,bytes,flops,intensity";
    let point = &table(&mut viewer, target.pid(), columns)["trajectory"];
    let [bytes, flops] = of_call.map(|of_call| (trajectories * of_call) as f64);
    // The viewer and this test use the counter's rate. The viewer has measured the rate for longer,
    // so the results differ slightly.
    let near = |found: f64, expected: f64| {
        assert!(
            (found / expected - 1.0).abs() < 0.01,
            "{program}: {found}, not {expected}: {point}"
        );
    };
    near(number(point, "bytes_per_cpu_s"), bytes / seconds);
    near(number(point, "flops_per_cpu_s"), flops / seconds);
    let extreme = |name: &str, choose: fn(f64, f64) -> f64| {
        rows.iter().map(|row| number(row, name)).reduce(choose).expect("there are threads")
    };
    near(number(point, "min_s"), extreme("Min", f64::min));
    near(number(point, "max_s"), extreme("Max", f64::max));
    near(number(point, "avg_s"), seconds / count);
    let intensity = number(point, "flops_per_byte");
    assert!((intensity / (flops / bytes) - 1.0).abs() < 1e-9, "{intensity} flops a byte");
    figure(&format!("{program}: {:.3} GFLOP/s", flops / seconds / 1e9));
    target.end_well();
}

#[test]
fn lorenz_over_threads_equals_plain_arithmetic() {
    let place = Place::new();
    // Two threads run at once, so no lane has two owners in turn.
    assert_lorenz(&place, env!("CARGO_BIN_EXE_lorenz"), 2, 64, 20_000);
}

#[test]
fn lorenz_over_openmp_equals_plain_arithmetic() {
    let source = format!("{C_EXAMPLES}/lorenz.cpp");
    for compiler in Compiler::all().filter(|compiler| compiler.is_cxx()) {
        let place = Place::new();
        if !c::has_openmp(compiler) {
            continue;
        }
        let flags = ["-fopenmp", "-ffp-contract=off"];
        let program = c::compile(compiler, "lorenz", &[&source], Link::Static, flags);
        assert_lorenz(&place, program.to_str().expect("it is plain text"), 4, 64, 20_000);
    }
}

/// The bytes and operations of the loops are counted, and compared with the machine's ceilings.
#[test]
fn loops_stay_below_the_roofline() {
    const ROUNDS: u64 = 2;
    let place = Place::new();
    let (target, lines, _) = run(&place, env!("CARGO_BIN_EXE_triad"), &[&ROUNDS.to_string()]);
    let shown = shown(&lines);
    let of = |label: &str| {
        let mut amounts: Vec<[u64; 3]> = Vec::new();
        for one in calls(&shown, label) {
            amounts.push(["Bytes", "Flops", "Calls"].map(|name| one[name].as_u64().expect(name)));
            let [least, mean, most] = ["Min", "Avg", "Max"].map(|name| number(one, name));
            assert!(least <= mean && mean <= most, "{label}: {one}");
        }
        amounts.sort_unstable();
        amounts
    };
    let each = |n: u64| [n * 24, n * 2, ROUNDS * 4_000_000 / n];
    assert_eq!(of("triad"), [1_000, 10_000, 4_000_000].map(each));
    assert_eq!(of("multiply"), [[4 * 192 * 192 * 8, 2 * 192 * 192 * 192, ROUNDS]]);

    let roofline = |more: &[&str]| {
        let mut command = place.command(pfp_top());
        command.env("XDG_CACHE_HOME", place.folder());
        let pid = target.pid().to_string();
        command.args(["roofline", "-p", &pid, "--json"]).args(more);
        let output = command.output().expect("pfp-top can be run");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        serde_json::from_slice::<Value>(&output.stdout).expect("it is JSON")
    };
    let picture = place.path("roofline.svg");
    let measured = roofline(&["--threads", "1", "-o", picture.to_str().expect("plain text")]);
    let points = measured["points"].as_array().expect("points");
    let find = |name: &str| {
        points.iter().find(|point| point["name"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    let multiply = 2.0 * 192.0 / (4.0 * 8.0);
    for (name, intensity) in [("triad", 2.0 / 24.0), ("dot", 2.0 / 16.0), ("multiply", multiply)] {
        let point = find(name);
        assert!((number(point, "flops_per_byte") / intensity - 1.0).abs() < 1e-9, "{point}");
        let rates = number(point, "flops_per_cpu_s") / number(point, "bytes_per_cpu_s");
        assert!((rates / intensity - 1.0).abs() < 1e-9, "{point}");
        // The rate multiplied by the time is the number of operations.
        let flops = number(point, "flops_per_cpu_s") * number(point, "cpu_seconds");
        let expected: u64 = of(name).iter().map(|[_, flops, calls]| flops * calls).sum();
        assert!((flops / expected as f64 - 1.0).abs() < 1e-6, "{flops} instead of {expected}");
    }
    // `--kept` prints the same ceilings, and the same picture if the figures do not change.
    let kept = roofline(&["--kept"]);
    assert_eq!(kept, measured);
    let picture = std::fs::read_to_string(picture).expect("it was written");
    assert_eq!(picture.matches("<circle").count(), 3, "{picture}");
    target.end_well();
}

//! The examples of the README's list that need no test of their own: each runs, and its
//! figures are held against arithmetic that knows nothing of pfp.

use std::collections::BTreeMap;
use std::process::Command;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::stolen::Outside;
use pfp_tests::target::{Place, Target};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, skipped};

const C_EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe/examples/c");

/// Runs an example up to its table; the lines by what stands before the colon, and the
/// milliseconds that were stolen from it.
fn run(
    place: &Place,
    program: &str,
    arguments: &[&str],
) -> (Target, BTreeMap<String, Vec<String>>, f64) {
    let mut target = Target::start(place.command(program).args(arguments).arg("--hold"));
    let account = Outside::of(target.pid());
    target.reach("done");
    let stolen_ms = account.stolen().as_secs_f64() * 1e3;
    // The script's lines are split at blanks, and the first word is the key.
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
    // The polynomial, term by term.
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
    // All of the phases are within what the timer was on the CPU.
    let said = format!("{own_ms} ms of {all:?}, {stolen_ms} ms stolen");
    figure(&format!("phases: {said}"));
    assert!(all[1] <= all[0] + 0.5 && own_ms <= all[1] * 1.02 + stolen_ms, "{said}");
    assert!(own_ms >= all[1] * 0.5, "the phases are most of it: {said}");
    target.end_well();
}

#[test]
fn six_workers_are_right_and_told_apart_by_fractions_of_a_cycle() {
    let place = Place::new();
    let rounds = 4;
    let (target, lines, _) = run(&place, env!("CARGO_BIN_EXE_inner_loop"), &[&rounds.to_string()]);
    assert_eq!(lines["right"].len(), 6);
    assert!(lines["right"].iter().all(|line| line.ends_with(" 2096")), "{:?}", lines["right"]);
    assert_eq!(lines["live"].len(), rounds, "one line a round");
    // Name, count, and cycles an element by pfp and by hand.
    let found: Vec<(String, u64, f64, f64)> = lines["worker"]
        .iter()
        .map(|line| {
            let (name, rest) = line.split_once(' ').expect("a name");
            let [count, by_pfp, by_hand] = numbers(rest)[..] else { panic!("{line}") };
            (name.to_owned(), count as u64, by_pfp, by_hand)
        })
        .collect();
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    for (name, count, by_pfp, by_hand) in &found {
        figure(&format!("{name}: {by_pfp} cycles an element, by hand {by_hand}"));
        assert_eq!(watch::named(picture, &format!("add:{name}")).count, *count);
        assert_eq!(*count, rounds as u64 * 200);
    }
    // The fastest of hundreds of passes of thousands of cycles each. Such a one is too short
    // if it pays for what was stolen before it (`pfp_tests::stolen`): however little that
    // was, so that one of the six may be wrong.
    let all = found.len();
    let agrees = |it: &&(String, u64, f64, f64)| (it.2 / it.3 - 1.0).abs() < 0.1;
    let found: Vec<_> = found.iter().filter(agrees).collect();
    // Not optimised, a pass is long enough to be interrupted each time.
    let least = if cfg!(debug_assertions) { 0 } else { all - 1 };
    assert!(found.len() >= least, "only these agree with what is measured by hand: {found:?}");
    // What differs by a tenth of a cycle and a fifth of itself by hand, does by pfp.
    let mut pairs = 0;
    for a in &found {
        for b in &found {
            let apart = b.3 - a.3;
            if apart > 0.1 && apart > 0.3 * a.3 {
                assert!(b.2 > a.2, "{a:?} {b:?}");
                pairs += usize::from(apart < 1.0);
            }
        }
    }
    figure(&format!("{pairs} pairs differ by less than a cycle and are told apart"));
    if cfg!(not(debug_assertions)) {
        assert!(pairs > 0, "no two ways differ by a fraction of a cycle: {found:?}");
    }
    target.end_well();
}

/// The sums, one trajectory after the other.
fn lorenz(trajectories: u32, steps: u32) -> [f64; 3] {
    let slope = |[x, y, z]: [f64; 3]| [10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z];
    let along =
        |s: [f64; 3], d: [f64; 3], t: f64| [s[0] + t * d[0], s[1] + t * d[1], s[2] + t * d[2]];
    let mut sum = [0.0; 3];
    for number in 0..trajectories {
        let mut s = [1.0 + f64::from(number) * 1e-3, 1.0, 1.0];
        for _ in 0..steps {
            let h = 0.001;
            let a = slope(s);
            let b = slope(along(s, a, h / 2.0));
            let c = slope(along(s, b, h / 2.0));
            let d = slope(along(s, c, h));
            for at in 0..3 {
                s[at] += h / 6.0 * (a[at] + 2.0 * b[at] + 2.0 * c[at] + d[at]);
            }
        }
        (0..3).for_each(|at| sum[at] += s[at]);
    }
    sum
}

fn assert_lorenz(place: &Place, program: &str, threads: u32, trajectories: u32, steps: u32) {
    let arguments = [threads, trajectories, steps].map(|number| number.to_string());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (target, lines, stolen_ms) = run(place, program, &arguments);
    let found = numbers(&lines["sum"][0]);
    for (found, expected) in found.iter().zip(lorenz(trajectories, steps)) {
        // The same trajectories, summed in another order.
        assert!((found - expected).abs() < 1e-6, "{program}: {found} instead of {expected}");
    }
    let point = numbers(&lines["point"][0]);
    let [count, all, least, most, mean, deviation] = point[..] else { panic!("{point:?}") };
    assert_eq!(count, f64::from(trajectories));
    assert!(least <= mean && mean <= most && deviation <= most - least, "{point:?}");
    assert!((mean * count / all - 1.0).abs() < 1e-3, "{point:?}");
    // Nearly all that the threads did on a CPU, by the kernel's account.
    let on_cpu = numbers(&lines["on_cpu_ms"][0])[0];
    let said = format!("{all} ms in trajectories of {on_cpu} on a CPU, {stolen_ms} stolen");
    figure(&format!("{program}: {said}"));
    assert!(all <= on_cpu * 1.02 + stolen_ms && all >= on_cpu * 0.8, "{program}: {said}");
    let mut watch = Watch::attach(place, &target);
    let picture = watch.poll();
    let id = watch::id(picture, "trajectory");
    // Of threads that run, and of those that have ended.
    let lanes =
        watch::cells(picture, id).filter(|cell| cell.live.count + cell.retired.count > 0).count();
    assert_eq!(lanes, threads.min(trajectories) as usize, "{program}: one lane a thread");
    assert_eq!(watch::total(picture, id).count, u64::from(trajectories));
    target.end_well();
}

#[test]
fn lorenz_over_threads_gives_what_plain_arithmetic_gives() {
    let place = Place::new();
    // Two threads, which run at once: no lane is used by two of them in turn.
    assert_lorenz(&place, env!("CARGO_BIN_EXE_lorenz"), 2, 64, 20_000);
}

#[test]
fn lorenz_over_openmp_gives_the_same() {
    let source = format!("{C_EXAMPLES}/lorenz.cpp");
    for compiler in Compiler::all().filter(|compiler| compiler.is_cxx()) {
        let place = Place::new();
        let empty = place.path().join("empty.cpp");
        std::fs::write(&empty, "int main() { return 0; }\n").expect("there is room");
        let mut command = Command::new(compiler.name);
        command.arg("-fopenmp").arg(empty).arg("-o").arg(place.path().join("empty"));
        if !command.output().is_ok_and(|output| output.status.success()) {
            skipped("Lorenz over OpenMP", &format!("{} has no -fopenmp here", compiler.name));
            continue;
        }
        let flags = ["-fopenmp", "-ffp-contract=off"];
        let program = c::compile(compiler, "lorenz", &[&source], Link::Static, flags);
        assert_lorenz(&place, program.to_str().expect("it is plain text"), 4, 64, 20_000);
    }
}

/// What the loops move and compute is counted, and set below the machine's ceilings.
#[test]
fn loops_stand_below_the_roof() {
    const ROUNDS: u64 = 2;
    let place = Place::new();
    let (target, lines, _) = run(&place, env!("CARGO_BIN_EXE_triad"), &[&ROUNDS.to_string()]);
    // A line of JSON, which begins with the array of threads.
    let shown = lines.keys().find(|key| key.starts_with("[{")).expect("a line of JSON");
    let shown: Vec<serde_json::Value> = serde_json::from_str(shown).expect("it is JSON");
    let of = |label: &str| {
        let mut calls: Vec<[u64; 3]> = Vec::new();
        for one in shown.iter().flat_map(|thread| thread[label].as_array().into_iter().flatten()) {
            calls.push(["Bytes", "Flops", "Calls"].map(|name| one[name].as_u64().expect(name)));
            let [least, mean, most] =
                ["Min", "Avg", "Max"].map(|name| one[name].as_f64().expect(name));
            assert!(least <= mean && mean <= most, "{label}: {one}");
        }
        calls.sort_unstable();
        calls
    };
    let each = |n: u64| [n * 24, n * 2, ROUNDS * 4_000_000 / n];
    assert_eq!(of("triad"), [1_000, 10_000, 4_000_000].map(each));
    assert_eq!(of("multiply"), [[4 * 192 * 192 * 8, 2 * 192 * 192 * 192, ROUNDS]]);

    let roofline = |more: &[&str]| {
        let mut command = place.command(pfp_tests::screen::pfp_top().to_str().expect("plain text"));
        command.env("XDG_CACHE_HOME", place.path());
        let pid = target.pid().to_string();
        command.args(["roofline", "-p", &pid, "--json"]).args(more);
        let output = command.output().expect("pfp-top can be run");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("it is JSON")
    };
    let picture = place.path().join("roofline.svg");
    let measured = roofline(&["--threads", "1", "-o", picture.to_str().expect("plain text")]);
    let points = measured["points"].as_array().expect("points");
    let number = |of: &serde_json::Value, name: &str| of[name].as_f64().expect("a number");
    let find = |name: &str| {
        points.iter().find(|point| point["name"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    let multiply = 2.0 * 192.0 / (4.0 * 8.0);
    for (name, intensity) in [("triad", 2.0 / 24.0), ("dot", 2.0 / 16.0), ("multiply", multiply)] {
        let point = find(name);
        assert!((number(point, "flops_per_byte") / intensity - 1.0).abs() < 1e-9, "{point}");
        let rates = number(point, "flops_per_cpu_s") / number(point, "bytes_per_cpu_s");
        assert!((rates / intensity - 1.0).abs() < 1e-9, "{point}");
        // As much as it did, in the time that it took.
        let flops = number(point, "flops_per_cpu_s") * number(point, "cpu_seconds");
        let expected: u64 = of(name).iter().map(|[_, flops, calls]| flops * calls).sum();
        assert!((flops / expected as f64 - 1.0).abs() < 1e-6, "{flops} instead of {expected}");
    }
    // The same ceilings again, and the same picture of what stands still.
    let kept = roofline(&["--kept"]);
    assert_eq!(kept, measured);
    let picture = std::fs::read_to_string(picture).expect("it was written");
    assert_eq!(picture.matches("<circle").count(), 3, "{picture}");
    target.end_well();
}

//! Many machines: a hundred endpoints, a Prometheus that scrapes them all, and the rules in docs/
//! that users copy.

use std::process::Command;

use pfp_tests::c;
use pfp_tests::place::Place;
use pfp_tests::prometheus::{Prometheus, get};
use pfp_tests::target::{Target, wait_for};
use pfp_tests::{figure, lacks};

use super::serve::{OPEN_METRICS, PROTOBUF, ROOT, Served};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
const RULES: &str = "assets/prometheus-rules.yml";
const MACHINES: usize = 100;
const POINTS: usize = 200;

/// A simulated machine: a program, and its endpoint.
struct Machine {
    served: Served,
    _target: Target,
    _place: Place,
}

impl Machine {
    fn start(arguments: &[&str]) -> Self {
        let place = Place::new();
        let target = place.start_watched(TARGET, &["thousands", &POINTS.to_string()]);
        Self { served: Served::start(&place, arguments), _target: target, _place: place }
    }

    /// The series of points, once there are any.
    fn series(&self) -> Vec<String> {
        wait_for("the process", || {
            let text = self.served.metrics();
            let of_points = text.lines().filter(|line| line.contains("point=\""));
            let lines: Vec<String> = of_points.map(str::to_owned).collect();
            (!lines.is_empty()).then_some(lines)
        })
    }
}

#[test]
fn options_reduce_the_served_series() {
    let of = |lines: &[String], family: &str| {
        lines.iter().filter(|line| line.starts_with(&format!("{family}{{"))).count()
    };
    let whole = Machine::start(&["-i", "0.05"]).series();
    let calls = of(&whole, "pfp_calls_total");
    assert!(calls >= POINTS && of(&whole, "pfp_call_exclusive_seconds_count") == calls);
    let without = Machine::start(&["-i", "0.05", "--no-histograms"]).series();
    assert_eq!((of(&without, "pfp_calls_total"), without.len()), (calls, 7 * calls));
    // docs/monitoring.md states this number.
    assert_eq!(whole.len(), 44 * calls);
    // Four of fifty parts match the filter, each with four points.
    let filtered = Machine::start(&["-i", "0.05", "--filter", "^part0[1-4]", "--no-histograms"]);
    let filtered = filtered.series();
    assert_eq!(filtered.len(), 7 * 16, "{filtered:?}");
    assert!(filtered.iter().all(|line| line.contains("point=\"part0")), "{filtered:?}");
}

#[test]
fn the_published_rules_compute_what_they_promise() {
    if lacks("the rules' test", "promtool") {
        return;
    }
    for arguments in [["check", "rules", RULES], ["test", "rules", "tests/tests/files/rules.yml"]] {
        c::run(Command::new("promtool").args(arguments).current_dir(ROOT));
    }
}

#[test]
fn one_prometheus_scrapes_a_hundred_machines() {
    if lacks("scraping by a real Prometheus", "prometheus") {
        return;
    }
    let start = |_| Machine::start(&["-i", "1"]);
    let machines: Vec<Machine> = (0..MACHINES).map(start).collect();
    for (kind, lines) in [
        ("text", &[OPEN_METRICS][..]),
        ("text, gzip", &[OPEN_METRICS, "Accept-Encoding: gzip"]),
        ("native", &[PROTOBUF]),
        ("native, gzip", &[PROTOBUF, "Accept-Encoding: gzip"]),
    ] {
        let _ = machines[0].series();
        let answer = get(&machines[0].served.address, "/metrics", lines);
        figure(&format!("fleet: {POINTS} points as {kind}: {} bytes", answer.body.len()));
    }
    let targets: Vec<String> =
        machines.iter().map(|machine| format!("'{}'", machine.served.address)).collect();
    let place = Place::new();
    let config = format!(
        "global: {{scrape_interval: 5s, evaluation_interval: 1s}}\n\
         rule_files: ['{ROOT}/{RULES}']\n\
         scrape_configs: [{{job_name: pfp, static_configs: [{{targets: [{}]}}]}}]\n",
        targets.join(", ")
    );
    let features = ["native-histograms"];
    let prometheus = Prometheus::with(&place.path("prometheus"), &config, &features);
    let number = |query: &str| prometheus.value(query, None);
    // On a busy machine a scrape may time out and have no series.
    let most = wait_for("all to be scraped, each whole", || {
        let machines = format!("count(count by (instance) (pfp_calls_total) >= {POINTS})");
        let all = [machines.as_str(), "count(up == 1)"];
        let are_whole = all.iter().all(|query| number(query) == Some(MACHINES as f64));
        let [least, most] =
            ["min", "max"].map(|which| number(&format!("{which}(scrape_samples_scraped)")));
        (are_whole && least == most).then_some(most?)
    });
    // Seven series for each point, its histogram, and a few of the process; all scrapes have
    // equally many.
    let points = number("count(pfp_calls_total)").expect("there are some") / MACHINES as f64;
    assert!(most >= 8.0 * points && most <= 8.0 * points + 40.0, "{most} for {points} points");
    figure(&format!(
        "fleet: {MACHINES} machines of {points} points: {most} samples a scrape, {:?} s on average, {:?} s at most",
        number("avg(scrape_duration_seconds)"),
        number("max(scrape_duration_seconds)")
    ));

    // The rules sum series with equal names: one series per point, over all machines.
    wait_for("the rules' series", || {
        (number("count(point:pfp_calls:rate5m)")? == points).then_some(())
    });
    for rule in ["point:pfp_cpus:rate5m", "point:pfp_call_seconds:p99_5m"] {
        let found = prometheus.query(&format!("count by (job, process) ({rule})"), None);
        assert!(found.len() <= 1, "{rule}: {found:?}");
    }
    // A rule that was not evaluated yet has no health.
    wait_for("each rule to run without an error", || {
        let rules = prometheus.api("rules");
        let groups = rules["groups"].as_array().expect("there are groups");
        let mut all =
            groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
        all.all(|rule| {
            assert_ne!(rule["health"], "err", "{rule}");
            rule["health"] == "ok"
        })
        .then_some(())
    });
}

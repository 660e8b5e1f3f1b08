//! Tests the endpoint of `pfp-top serve`: with requests by hand, and with a real Prometheus whose
//! results are compared with the segment.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pfp_shm_layout::control::Change;
use pfp_shm_layout::reader::Picture;
use pfp_tests::measured::{Own, is_near, own};
use pfp_tests::os;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::prometheus::{Prometheus, Series, ask, get};
use pfp_tests::target::{Target, wait_for};
use pfp_tests::watch::Watch;
use pfp_tests::{figure, lacks, unpacked};
use serde_json::Value;

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
pub(super) const OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0";
pub(super) const PROTOBUF: &str = "Accept: application/vnd.google.protobuf;\
                        proto=io.prometheus.client.MetricFamily;encoding=delimited";
pub(super) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// An endpoint under test.
pub(super) struct Served {
    viewer: Target,
    pub(super) address: String,
}

impl Served {
    pub(super) fn start(place: &Place, arguments: &[&str]) -> Self {
        let mut command = place.command(pfp_top());
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut viewer = Target::start(&mut command);
        let address = wait_for("the address", || {
            let line = viewer.lines_so_far().first()?.clone();
            let rest = line.strip_prefix("serving http://")?;
            Some(rest.strip_suffix("/metrics").expect("it ends so").to_owned())
        });
        Self { viewer, address }
    }

    pub(super) fn metrics(&self) -> String {
        let answer = get(&self.address, "/metrics", &[OPEN_METRICS]);
        assert_eq!(answer.status, 200, "{}", answer.head);
        answer.text().to_owned()
    }

    /// The value of the only series with this name that has all of these labels.
    fn value(&self, name: &str, labels: &[&str]) -> Option<f64> {
        value(&self.metrics(), name, labels)
    }
}

fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let mut found = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let rest = series.strip_prefix(name)?.strip_prefix('{')?;
        labels.iter().all(|label| rest.contains(label)).then(|| value.parse().expect("a number"))
    });
    let value = found.next();
    assert!(found.next().is_none(), "{name} {labels:?} is several");
    value
}

/// Starts a program, and returns once it has worked.
fn start(place: &Place) -> (Target, Watch) {
    let mut target = place.start(TARGET, &["served"]);
    target.reach("worked");
    let watch = Watch::attach(place, &target);
    (target, watch)
}

/// If the connection to one of several machines is lost, the endpoint reports that and keeps
/// serving the others.
#[test]
fn losing_one_machine_keeps_the_others_served() {
    const BOTH: [&str; 2] = ["{place=\"far\"} 1.0", "{place=\"near\"} 1.0"];
    const ONE: [&str; 2] = ["{place=\"far\"} 0.0", "{place=\"near\"} 1.0"];
    let (place, other) = (Place::new(), Place::new());
    let (_one, _) = start(&place);
    let (two, _) = start(&other);
    let viewer = pfp_top().display();
    // The script starts the agent of the place `far`, and fails while the file `down` exists. The
    // place `near` is not affected.
    let far = place.path("far");
    let script = format!(
        "#!/bin/sh\n[ -e down ] && exit 9\necho $$ >pid\nexec env PFP_DIR={} {viewer} agent\n",
        other.beacons().display()
    );
    fs::write(&far, script).expect("the folder is new");
    fs::set_permissions(&far, Permissions::from_mode(0o755)).expect("it is ours");
    let near = format!("{viewer} agent # near");
    let far = format!("{} # far", far.display());
    let served = Served::start(&place, &["-i", "0.05", "--via", &near, "--via", &far]);
    let places = || {
        let text = served.metrics();
        let up = text.lines().filter_map(|line| line.strip_prefix("pfp_place_up"));
        up.map(str::to_owned).collect::<Vec<_>>()
    };
    let pid = format!("pid=\"{}\"", two.pid());
    let is_exported = || served.value("pfp_calls_total", &[&pid, "point=\"parse\""]).is_some();
    wait_for("both", || places() == BOTH && is_exported());
    fs::write(place.path("down"), "").expect("the folder is new");
    let agent = fs::read_to_string(place.path("pid")).expect("it was written");
    os::signal(agent.trim().parse().expect("an id"), libc::SIGKILL);
    wait_for("that one is lost", || places() == ONE && !is_exported());
    fs::remove_file(place.path("down")).expect("it is there");
    wait_for("it to be back", || places() == BOTH && is_exported());
}

#[test]
fn waits_have_the_name_of_their_lock_and_only_grow() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["deadlocked"]);
    target.reach("started");
    let served = Served::start(&place, &["-i", "0.05", "--waits"]);
    let waited = || {
        let text = served.metrics();
        let is_wanted = |line: &&str| {
            line.starts_with("pfp_wait_seconds_total{")
                && line.contains("point=\"transfer\",reason=\"lock\",name=\"")
                && line.contains("JOURNAL\"} ")
        };
        text.lines().find(is_wanted)?.rsplit_once(' ')?.1.parse::<f64>().ok()
    };
    let mut last = wait_for("the first waits", waited);
    let first = last;
    wait_for("two seconds more", || {
        let now = waited().expect("it was there");
        assert!(now >= last, "{last} {now}");
        last = now;
        (last >= first + 2.0).then_some(())
    });
    assert!(served.value("pfp_wait_seconds_total", &["point=\"(outside)\""]).is_none());
}

#[test]
fn figures_equal_the_segment_and_no_reset_decreases_them() {
    let place = Place::new();
    let (mut target, mut watch) = start(&place);
    let served = Served::start(&place, &["-i", "0.05"]);
    let pid = format!("pid=\"{}\"", target.pid());
    // The process is served once its clock is a second old.
    wait_for("the process", || served.value("pfp_calls_total", &[&pid, "point=\"parse\""]));
    let compare = |before: &Own, now: &Own, name: &str| {
        let label = format!("point=\"{name}\"");
        let expected = before.count + now.count;
        let text = wait_for("what was measured last", || {
            let text = served.metrics();
            let calls = value(&text, "pfp_calls_total", &[&pid, &label])?;
            (calls == expected as f64).then_some(text)
        });
        let of = |family: &str| {
            value(&text, family, &["process=\"served\"", &pid, &label]).expect("it is there")
        };
        for (family, expected) in [
            ("pfp_exclusive_seconds_total", before.exclusive + now.exclusive),
            ("pfp_inclusive_seconds_total", before.inclusive + now.inclusive),
            ("pfp_off_cpu_seconds_total", before.off_cpu + now.off_cpu),
            ("pfp_call_exclusive_seconds_sum", before.exclusive + now.exclusive),
        ] {
            let found = of(family);
            assert!(is_near(found, expected, 1e-3), "{name} {family}: {found} for {expected}");
        }
        assert_eq!(of("pfp_switches_total"), (before.switches + now.switches) as f64);
        assert_eq!(of("pfp_call_exclusive_seconds_count"), expected as f64);
        // The buckets are cumulative, and the last one has all measurements.
        let buckets: Vec<f64> = text
            .lines()
            .filter(|line| line.starts_with("pfp_call_exclusive_seconds_bucket{"))
            .filter(|line| line.contains(&label) && line.contains(&pid))
            .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
            .collect();
        assert!(buckets.len() > 30 && buckets.is_sorted());
        assert_eq!(buckets.last(), Some(&(expected as f64)));
    };
    let names = ["request", "parse", "wait"];
    let picture = watch.poll().clone();
    let before = names.map(|name| own(&picture, name));
    for (before, name) in before.iter().zip(names) {
        compare(&Own::default(), before, name);
    }
    assert_eq!((before[1].count, before[2].count), (500, 8));
    assert!(before[1].exclusive > 0.1 && before[2].off_cpu > 0.015, "{before:?}");

    let parse = picture.points.iter().find(|point| point.name == "parse").unwrap().id;
    watch.change(parse, Change::Reset);
    target.go();
    target.reach("worked");
    let picture = watch.poll().clone();
    let now = own(&picture, "parse");
    assert_eq!(now.count, 400, "the reset has come to the segment");
    compare(&before[1], &now, "parse");
    compare(&Own::default(), &own(&picture, "request"), "request");

    // The last figures of a process that has ended are still served.
    let text = format!("{pid},exe=");
    drop(target.end_well());
    wait_for("its end", || {
        served
            .metrics()
            .lines()
            .find(|l| l.contains(&text) && l.contains("state=\"exited\""))
            .map(drop)
    });
    compare(&before[1], &now, "parse");
    os::signal(served.viewer.pid(), libc::SIGTERM);
    let ended = served.viewer.end();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn new_processes_are_served_and_threads_can_be_separate() {
    let place = Place::new();
    let served = Served::start(&place, &["--per-thread=1", "-i", "0.05"]);
    let text = served.metrics();
    assert!(text.contains("pfp_build_info{version=") && text.ends_with("# EOF\n"), "{text}");
    assert!(!text.contains("point="), "{text}");
    let (one, mut watch) = start(&place);
    let (two, _) = start(&place);
    let pids = [&one, &two].map(|target| format!("pid=\"{}\"", target.pid()));
    let label = "point=\"parse\"";
    for pid in &pids {
        let apart = wait_for("the newcomer", || {
            let text = served.metrics();
            let series: Vec<String> = text
                .lines()
                .filter(|line| line.starts_with("pfp_calls_total{"))
                .filter(|line| line.contains(pid.as_str()) && line.contains(label))
                .map(str::to_owned)
                .collect();
            (!series.is_empty()).then_some(series)
        });
        // Each lane has its own series, and threads without a lane share one.
        assert!(apart.len() <= 2, "{apart:?}");
        let calls = |line: &String| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        assert_eq!(apart.iter().map(calls).sum::<u64>(), 500, "{apart:?}");
        assert!(apart.iter().any(|line| line.contains("thread=\"(others)\"")), "{apart:?}");
    }
    assert_eq!(own(watch.poll(), "parse").count, 500);
    // With `-p`, only that process is served.
    let alone = Served::start(&place, &["-p", &one.pid().to_string()]);
    let text = wait_for("the process", || {
        let text = alone.metrics();
        text.contains(&pids[0]).then_some(text)
    });
    assert!(!text.contains(&pids[1]), "{text}");
}

#[test]
fn every_requested_exposition_format_is_served() {
    let place = Place::new();
    let (_target, _) = start(&place);
    // The process is served once its clock is a second old.
    let often = Served::start(&place, &["-i", "0.05"]);
    wait_for("the process", || often.value("pfp_calls_total", &["point=\"parse\""]));
    let served = Served::start(&place, &["-i", "3600"]);
    let at = |path: &str, lines: &[&str]| get(&served.address, path, lines);
    let open = at("/metrics", &[OPEN_METRICS]);
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(open.text().ends_with("# EOF\n") && open.text().contains("point=\"parse\""));
    assert_eq!(open.header("vary"), Some("Accept, Accept-Encoding"));
    let plain = at("/metrics", &[]);
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(plain.text().contains("# TYPE pfp_build_info gauge\npfp_build_info{version="));
    assert!(!plain.text().contains("# EOF") && !plain.text().contains("# UNIT"));
    let binary = at("/metrics", &[PROTOBUF]);
    assert!(binary.header("content-type").unwrap().contains("encoding=delimited"));
    // The message starts with its length, its first field, and the name in it.
    let name = b"pfp_calls_total";
    let at_name = binary.body.windows(name.len()).position(|window| window == name);
    assert!(at_name.is_some_and(|at| at < 8), "{:?}", &binary.body[..20]);

    // All requests within an interval use one poll.
    let packed = at("/metrics", &[OPEN_METRICS, "Accept-Encoding: gzip"]);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() < open.body.len() / 2);
    assert_eq!(unpacked(&packed.body), open.body);

    let head = ask(
        &served.address,
        &format!("HEAD /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", served.address),
    );
    let head = head.expect("it is answered");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some(plain.body.len().to_string().as_str()));
    assert_eq!(at("/", &[]).status, 200);
    assert_eq!(at("/secret", &[]).status, 404);
    if !lacks("promtool's judgement of the text", "promtool") {
        let mut check = Command::new("promtool");
        check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut check = check.spawn().expect("promtool starts");
        check.stdin.take().unwrap().write_all(&plain.body).unwrap();
        let said = check.wait_with_output().unwrap();
        assert!(said.status.code() != Some(1), "{}", String::from_utf8_lossy(&said.stderr));
    }
}

#[test]
fn requests_change_nothing_and_slow_clients_block_no_others() {
    let place = Place::new();
    let (target, mut watch) = start(&place);
    let served = Served::start(&place, &[]);
    let address = served.address.as_str();
    let before = own(watch.poll(), "parse").count;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let request = format!(
            "{method} /metrics HTTP/1.1\r\nHost: {address}\r\nContent-Length: 5\r\n\r\nreset"
        );
        let answer = ask(address, &request).expect("it is answered");
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    }
    assert_eq!(own(watch.poll(), "parse").count, before);
    // A web page that reaches the endpoint under its own host name.
    let rebound = "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let answer = ask(address, rebound).expect("it is answered");
    assert_eq!(answer.status, 421);
    assert!(!answer.text().contains("pfp_"));
    for wrong in ["\u{1}\u{2}\r\n\r\n", "GET\r\n\r\n"] {
        assert!(ask(address, wrong).is_none_or(|answer| answer.status == 400), "{wrong:?}");
    }
    let long =
        format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!(ask(address, &long).is_none_or(|answer| [400, 431].contains(&answer.status)));
    let many =
        format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n{}\r\n", "X: y\r\n".repeat(500));
    assert!(ask(address, &many).is_none_or(|answer| answer.status == 431));

    // Opens more connections than the server accepts; each never finishes its request or never
    // reads the reply. The server answers other clients before it has closed many of the slow ones.
    // On a busy machine, all slow ones may have reached their time limit; the test then repeats.
    let dawdlers = |count: usize| -> Vec<TcpStream> {
        let dawdler = |number: usize| {
            let mut stream = TcpStream::connect(address).expect("it still listens");
            let part = ["GET /met", "", "GET /metrics HTTP/1.1\r\nhost: here\r\n\r\n"][number % 3];
            // The server may have closed this connection to accept another one.
            let _ = stream.write_all(part.as_bytes());
            if part.ends_with("\r\n\r\n") {
                // Wait for the reply. The slot of this connection is free then, so the server
                // closes no other connection to accept the next one.
                let _ = stream.peek(&mut [0]);
            }
            stream
        };
        (0..count).map(dawdler).collect()
    };
    let scraped = || {
        let begun = Instant::now();
        assert_eq!(get(address, "/metrics", &[]).status, 200);
        begun.elapsed()
    };
    let median = |mut of: Vec<Duration>| {
        of.sort_unstable();
        of[of.len() / 2]
    };
    for count in [200, 400] {
        let tried = (0..5).map(|_| {
            let alone = scraped();
            let slow = dawdlers(count);
            let beside = scraped();
            let is_closed = |stream: &&TcpStream| {
                stream.set_nonblocking(true).expect("it is a socket");
                let mut stream = *stream;
                loop {
                    match stream.read(&mut [0; 1 << 16]) {
                        Ok(0) => return true,
                        Ok(_) => {}
                        Err(error) => return error.kind() != ErrorKind::WouldBlock,
                    }
                }
            };
            ((alone, beside), slow.iter().filter(is_closed).count())
        });
        let (times, closed): (Vec<_>, Vec<_>) = tried.unzip();
        let few = count - count * 3 / 5;
        assert!(closed.iter().any(|&closed| closed <= few), "of {count} dawdlers {closed:?}");
        // The server polls all connections, so a scrape beside many takes longer, but far less than
        // the seconds after which the slow ones time out.
        let (alone, beside): (Vec<_>, Vec<_>) = times.into_iter().unzip();
        let (alone, beside) = (median(alone), median(beside));
        figure(&format!("serve: {alone:?} alone, {beside:?} beside {count} dawdlers"));
        assert!(beside < 300 * alone, "{beside:?} beside {count} dawdlers, {alone:?} alone");
    }
    drop(target.end_well());
}

#[test]
fn invalid_options_of_serve_are_reported() {
    let place = Place::new();
    let run = |arguments: &[&str]| {
        let output = place.pfp_top(&[&["serve"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), said)
    };
    let (status, said) = run(&["--listen", "0.0.0.0:0"]);
    assert!(status == 2 && said.contains("--allow-remote"), "{said}");
    let (status, said) = run(&["--listen", "nonsense"]);
    assert!(status == 2 && said.contains("nonsense"), "{said}");
    let (status, said) = run(&["-p", "4194304", "--listen", "127.0.0.1:0"]);
    assert!(status == 3 && said.contains("4194304"), "{said}");
    let (status, said) = run(&["--all", "--sum"]);
    assert!(status == 2 && said.contains("sum by (point)"), "{said}");
    let taken = Served::start(&place, &[]);
    let (status, said) = run(&["--listen", &taken.address]);
    assert!(status == 2 && said.contains("another --listen"), "{said}");
}

/// The text blocks between fences of PromQL.
fn queries(file: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(ROOT).join(file)).expect("the file is there");
    let fences = text.split("```promql\n").skip(1);
    fences.map(|rest| rest.split("```").next().unwrap().trim().to_owned()).collect()
}

/// The queries of the dashboard, by panel title or variable name.
fn board() -> Vec<(String, String)> {
    let text = fs::read(Path::new(ROOT).join("assets/grafana-board.json")).expect("it is there");
    let board: Value = serde_json::from_slice(&text).expect("it is JSON");
    let panels = board["panels"].as_array().expect("it has panels");
    let mut covered = BTreeSet::new();
    let mut ids = BTreeSet::new();
    let mut all = Vec::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a panel has a title").to_owned();
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{title}: its id is twice");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let place = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(place("x") + place("w") <= 24, "{title} is beyond the edge");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(covered.insert((x, y)), "{title} covers another");
            }
        }
        for target in panel["targets"].as_array().expect("a panel asks something") {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            all.push((title.clone(), target["expr"].as_str().expect("PromQL").to_owned()));
        }
    }
    let variables = board["templating"]["list"].as_array().expect("it has variables");
    let kinds: Vec<_> = variables.iter().map(|v| v["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["datasource", "query", "query"]);
    for variable in &variables[1..] {
        let query = variable["query"]["query"].as_str().expect("it asks something");
        let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (series, label) = inner.and_then(|inner| inner.rsplit_once(", ")).expect("labels");
        all.push((format!("variable {label}"), format!("count by ({label}) ({series})")));
    }
    all
}

#[test]
fn prometheus_answers_the_queries_of_the_page_and_the_dashboard() {
    let board = board();
    assert!(board.len() >= 10, "{board:?}");
    if lacks("scraping by a real Prometheus", "prometheus") {
        return;
    }
    let place = Place::new();
    let (mut target, mut watch) = start(&place);
    let served = Served::start(&place, &["-i", "0.05"]);
    let folder = |name: &str| place.path(name);
    let classic = Prometheus::start(&folder("classic"), &served.address, &[]);
    let native = Prometheus::start(&folder("native"), &served.address, &["native-histograms"]);
    let both = [&classic, &native];

    // While the program is idle, the last scrape and the segment agree. They agree again after more
    // work, so both show the increase in between.
    let count = "pfp_calls_total{point=\"parse\"}";
    let scrape_until = |expected: u64| {
        both.map(|server| {
            let first = wait_for("the figures", || {
                let series = server.query(&format!("timestamp({count})"), None);
                let time = series.first()?.samples.first()?.1;
                (server.value(count, Some(time))? == expected as f64).then_some(time)
            });
            // Wait for another scrape of these figures.
            wait_for("another scrape", || {
                let time = server.value(&format!("timestamp({count})"), None)?;
                (time > first).then_some(time)
            })
        })
    };
    let starts = scrape_until(500);
    let both_points = |picture: &Picture| ["parse", "copy"].map(|name| own(picture, name));
    let [before, copied_before] = both_points(watch.poll());
    target.go();
    target.reach("worked");
    let [now, copied] = both_points(watch.poll());
    let copied = copied.since(&copied_before);
    let ends = scrape_until(900);
    let new = now.since(&before);
    assert_eq!((new.count, copied.count), (400, 400));
    // Each call copies 1,000 bytes.
    let bytes_per_cpu_s = 400.0 * 1000.0 / copied.exclusive;

    for (server, (start, end)) in both.into_iter().zip(starts.into_iter().zip(ends)) {
        // The window begins just before the last scrape of the first idle phase, and ends with a
        // scrape of the second.
        let window = end - start + 0.05;
        let text = format!("{}ms", (window * 1000.0).round());
        let exact = |query: &str| query.replace("5m", &text);
        let range = |query: &str| server.query(&exact(&format!("{query}[5m]")), Some(end));
        let [raw]: [Series; 1] =
            range("pfp_exclusive_seconds_total{point=\"parse\"}").try_into().expect("one series");
        let (first, last) = (raw.samples[0], *raw.samples.last().unwrap());
        assert!(is_near(first.1, before.exclusive, 1e-3), "{first:?} {before:?}");
        assert!(is_near(last.1, now.exclusive, 1e-3), "{last:?} {now:?}");

        // `rate` extrapolates the increase between two scrapes to at most the window.
        let between = |found: f64, grown: f64| {
            let (least, most) = (grown / window, grown / (last.0 - first.0));
            assert!(found >= least * 0.99 && found <= most * 1.01, "{found}: {least} to {most}");
        };
        let is_native = std::ptr::eq(server, &native);
        let asked = queries("docs/monitoring.md");
        let mut quantiles = 0;
        for query in asked {
            let of_native = query.contains("rate(pfp_call_exclusive_seconds[");
            let of_classic = query.contains("rate(pfp_call_exclusive_seconds_");
            if (of_native && !is_native) || (of_classic && is_native) {
                continue;
            }
            let answer = server.query(&exact(&query), Some(end));
            assert!(!answer.is_empty(), "{query} has no answer");
            if query.contains("kind") {
                assert!(answer.iter().all(|series| series.samples[0].1 == 0.0), "{answer:?}");
                continue;
            }
            if query.contains("amount") {
                assert_eq!(answer.len(), 1, "{answer:?}");
                assert_eq!(
                    (answer[0].label("point"), answer[0].label("amount")),
                    ("copy", "bytes")
                );
                let found = answer[0].samples[0].1;
                assert!(is_near(found, bytes_per_cpu_s, 1e-3), "{found} for {bytes_per_cpu_s}");
                continue;
            }
            let parse = answer.iter().find(|series| series.label("point") == "parse");
            let found = parse.unwrap_or_else(|| panic!("{query}: {answer:?}")).samples[0].1;
            if query.starts_with("histogram_quantile(0.99") {
                quantiles += 1;
                let expected = new.quantile(0.99);
                figure(&format!("p99 {expected:e}, native {is_native}: {found:e}"));
                let most = if is_native { 1.15 } else { 2.0 };
                assert!(found / expected <= most && expected / found <= most, "{query}: {found}");
            } else if query.contains("_sum") {
                let expected = new.exclusive / new.count as f64;
                assert!(is_near(found, expected, 1e-3), "{query}: {found} for {expected}");
            } else if query.contains("avg by") {
                assert_eq!(found, 1.0, "one process is as good as the mean");
            } else if query.contains("off_cpu") {
                // Each rate is extrapolated separately, and less if its counter was near 0.
                let most = window / (last.0 - first.0) * 1.01;
                let share = |off: f64, inclusive: f64| off / (off + inclusive);
                let low = share(new.off_cpu, new.inclusive * most);
                let high = share(new.off_cpu * most, new.inclusive);
                // Some nanoseconds off the CPU may fall on either side of a scrape.
                let is_so = (low - 1e-6..=high + 1e-6).contains(&found);
                assert!(is_so, "{query}: {found}: {low} to {high}");
            } else {
                between(found, new.exclusive);
            }
        }
        assert!(quantiles >= 1, "the quantile is asked");
        for (panel, query) in &board {
            let query = query
                .replace("$__rate_interval", &text)
                .replace("$process", ".*")
                .replace("$point", ".*");
            assert!(!query.contains('$'), "{panel}: a variable is not known: {query}");
            let answer = server.query(&query, Some(end));
            assert!(!answer.is_empty(), "{panel} shows nothing: {query}\n{}", server.log());
            let parse = answer.iter().find(|series| series.label("point") == "parse");
            match (panel.as_str(), parse.map(|series| series.samples[0].1)) {
                ("Load by point" | "Most exclusive time", Some(load)) => {
                    between(load, new.exclusive);
                }
                ("Calls per second", Some(rate)) => between(rate, 400.0),
                ("Amounts", _) => {
                    let found = answer[0].samples[0].1;
                    assert!(is_near(found, bytes_per_cpu_s, 1e-3), "{answer:?}");
                }
                (_, Some(_)) => {}
                (known, None) => assert!(
                    ["Overhead of measuring", "Losses", "Processes", "variable process"]
                        .contains(&known),
                    "{known}: {answer:?}"
                ),
            }
        }
        // Both kinds of histogram have the same data, each in its own form.
        let kind = |name: &str| server.query(name, Some(end)).len();
        let name = "pfp_call_exclusive_seconds{point=\"parse\"}";
        assert_eq!(kind(name), usize::from(is_native), "native histograms came: {is_native}");
        let build_info = "pfp_build_info{version!=\"\"}";
        assert_eq!(kind(build_info), 1);
        assert_eq!(kind("up == 1"), 1, "{}", server.log());
    }
    drop(target.end_well());
}

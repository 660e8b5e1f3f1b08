//! Pushes to a stand-in for a collector, decodes the messages with the published definitions and
//! compares them with the segment. Also tests `pfp-top push` when the collector refuses.

use std::collections::BTreeSet;
use std::time::Duration;

use pfp_shm_layout::control::Change;
use pfp_tests::collector::{Collector, Reply, Request, decoded};
use pfp_tests::measured::{Own, is_near, own};
use pfp_tests::os;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::{Target, wait_for};
use pfp_tests::unpacked;
use pfp_tests::watch::Watch;
use serde_json::{Value, json};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

fn push(place: &Place, collector: &Collector, arguments: &[&str]) -> Target {
    let mut command = place.command(pfp_top());
    command.args(["push", "--endpoint", &collector.url()]).args(arguments);
    Target::start(&mut command)
}

/// Starts a program, and returns once it has worked and its clock has settled.
fn start(place: &Place) -> (Target, Watch) {
    let mut target = place.start(TARGET, &["served"]);
    target.reach("worked");
    // Figures of a process are pushed only once its clock is a second old.
    let (early, pid) = (Collector::new(), target.pid());
    let mut pusher = push(place, &early, &["-p", &pid.to_string(), "-i", "100ms"]);
    wait_for("its figures to be pushed", || tells_of(&early.requests(), pid));
    pusher.kill();
    let watch = Watch::attach(place, &target);
    (target, watch)
}

/// Decodes requests into lists of figures; `None` if no decoder is installed.
fn read(place: &Place, requests: &[Request]) -> Option<Vec<Vec<Value>>> {
    let bodies: Vec<Vec<u8>> = requests.iter().map(|request| request.body.clone()).collect();
    let all = decoded(place.folder(), &bodies)?;
    Some(all.into_iter().map(|one| one.as_array().expect("it is a list").clone()).collect())
}

fn figures<'a>(all: &'a [Value], name: &'a str, point: &'a str) -> impl Iterator<Item = &'a Value> {
    all.iter().filter(move |figure| {
        let of = figure["attributes"]["pfp.point"].as_str();
        figure["name"] == name && of.unwrap_or("") == point
    })
}

/// The only figure with this name.
#[track_caller]
fn figure<'a>(all: &'a [Value], name: &'a str, point: &'a str) -> &'a Value {
    let mut found = figures(all, name, point);
    let figure = found.next().unwrap_or_else(|| panic!("{name} of {point:?} is not there"));
    assert!(found.next().is_none(), "{name} of {point:?} is several");
    figure
}

/// Compares every figure of a point with the segment.
fn compare(all: &[Value], name: &str, expected: &Own) {
    for (family, expected) in [("pfp.calls", expected.count), ("pfp.switches", expected.switches)] {
        assert_eq!(figure(all, family, name)["value"], json!(expected), "{family} of {name}");
    }
    for (family, expected) in [
        ("pfp.exclusive", expected.exclusive),
        ("pfp.inclusive", expected.inclusive),
        ("pfp.off_cpu", expected.off_cpu),
    ] {
        let found = figure(all, family, name);
        assert_eq!(found["unit"], "s");
        let found = found["value"].as_f64().unwrap();
        // The tolerance covers the calibration of the clock at that time.
        assert!(is_near(found, expected, 1e-3), "{family} of {name}: {found} for {expected}");
    }
    for figure in all.iter().filter(|figure| figure["attributes"]["pfp.point"] == name) {
        let gauge = figure["kind"] == "gauge";
        let (temporality, monotonic) = (&figure["temporality"], &figure["monotonic"]);
        // 2 means cumulative.
        assert_eq!(*temporality, if gauge { Value::Null } else { json!(2) }, "{figure}");
        assert_eq!(*monotonic, if figure["kind"] == "sum" { json!(true) } else { Value::Null });
        let (start, time) = (figure["start"].as_u64().unwrap(), figure["time"].as_u64().unwrap());
        assert!(if gauge { start == 0 } else { start > 0 && start < time }, "{figure}");
    }
    let calls = figure(all, "pfp.call.exclusive", name);
    assert_eq!((&calls["count"], &calls["scale"]), (&json!(expected.count), &json!(3)));
    assert!(is_near(calls["sum"].as_f64().unwrap(), expected.exclusive, 1e-3));
    let base = 2_f64.powf(0.125);
    let offset = calls["offset"].as_i64().unwrap() as i32;
    let mut so_far = calls["zero_count"].as_u64().unwrap();
    for (place, count) in calls["buckets"].as_array().unwrap().iter().enumerate() {
        so_far += count.as_u64().unwrap();
        // A bucket of the segment counts at its middle, so it may exceed the limit by a
        // sixty-fourth of its value; the clock adds a thousandth.
        let end = base.powi(offset + place as i32 + 1);
        let ((surely, _), (_, most)) = (expected.up_to(end / 1.02), expected.up_to(end * 1.02));
        assert!((surely..=most).contains(&so_far), "{name} up to {end}: {so_far}");
    }
    assert_eq!(so_far, expected.count);
    let (min, max) = (calls["min"].as_f64().unwrap(), calls["max"].as_f64().unwrap());
    assert!(min <= max && max * 1.001 >= expected.quantile(1.0) / (1.0 + 1.0 / 31.0));
}

#[test]
fn figures_equal_the_segment_and_no_reset_decreases_them() {
    let place = Place::new();
    let (mut target, mut watch) = start(&place);
    let collector = Collector::new();
    let pid = target.pid();
    let pusher = push(&place, &collector, &["-p", &pid.to_string(), "-i", "100ms", "--gzip"]);
    let picture = watch.poll().clone();
    let names = ["request", "parse", "wait"];
    let before = names.map(|name| own(&picture, name));
    assert_eq!((before[0].count, before[1].count, before[2].count), (400, 500, 8));
    // The first push has no load, which needs two polls.
    let first = collector.wait_for(2).len();
    let parse = picture.points.iter().find(|point| point.name == "parse").unwrap().id;
    watch.change(parse, Change::Reset);
    // Wait until the pusher has seen the reset.
    collector.wait_for(first + 2);
    target.go();
    target.reach("worked");
    let picture = watch.poll().clone();
    let now = names.map(|name| own(&picture, name));
    assert_eq!(now[1].count, 400, "the reset has come to the segment");
    let running = collector.wait_for(collector.requests().len() + 2).len();
    drop(target.end_well());
    let ended = pusher.end();
    assert!(ended.status.success() && ended.errors.is_empty(), "{}", ended.errors);

    let requests = collector.requests();
    for request in &requests {
        assert!(request.head.starts_with("post /v1/metrics http/1.1\r\n"), "{}", request.head);
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
        assert_eq!(request.header("content-encoding"), Some("gzip"));
    }
    let unpacked: Vec<Request> = requests
        .into_iter()
        .map(|request| Request { body: unpacked(&request.body), ..request })
        .collect();
    let Some(all) = read(&place, &unpacked) else { return };
    for (own, name) in before.iter().zip(names) {
        compare(&all[0], name, own);
        compare(&all[first - 1], name, own);
    }
    for request in [&all[running - 1], &all[all.len() - 1]] {
        compare(request, "request", &now[0]);
        compare(request, "parse", &before[1].plus(&now[1]));
        compare(request, "wait", &now[2]);
    }
    // Sums never decrease, and each has one start time.
    for pair in all.windows(2) {
        for then in pair[0].iter().filter(|figure| figure["kind"] != "gauge") {
            let same = |figure: &&Value| {
                ["name", "attributes", "resource"].iter().all(|key| figure[key] == then[key])
            };
            let later = pair[1].iter().find(same).expect("it stays");
            assert_eq!(later["start"], then["start"]);
            for key in ["value", "count", "sum"] {
                assert!(later[key].as_f64() >= then[key].as_f64(), "{key}: {then} {later}");
            }
        }
    }
    // Attributes of the process, which apply to all of its figures.
    let exe = std::fs::canonicalize(TARGET).unwrap();
    let last = &all[all.len() - 1];
    for figure in last {
        let resource = &figure["resource"];
        assert_eq!(resource["service.name"], "served");
        assert_eq!(resource["process.pid"], json!(pid));
        assert_eq!(resource["process.executable.path"], exe.to_str().unwrap());
        assert_eq!(resource["process.executable.name"], "pfp-test-target");
        assert_eq!(resource["host.name"].as_str().unwrap(), host());
        assert_eq!(resource["service.instance.id"].as_str().unwrap().len(), 32);
        assert_eq!(figure["scope"], json!(["pfp-top", env!("CARGO_PKG_VERSION")]));
    }
    let info = &figure(last, "pfp.process.info", "")["attributes"];
    assert_eq!(info["pfp.process.state"], "exited");
    assert_eq!(
        figure(&all[0], "pfp.process.info", "")["attributes"]["pfp.process.state"],
        "running"
    );
    assert_eq!(figures(last, "pfp.losses", "").count(), 9);
    assert_eq!(figure(last, "pfp.cells.busy", "")["value"], json!(0));
    assert!(figure(last, "pfp.elapsed", "")["value"].as_f64() > Some(1.0));
    assert!(figure(last, "pfp.overhead", "")["value"].as_f64() > Some(0.0));
    assert_eq!(figure(last, "pfp.enabled", "parse")["value"], json!(1));
    assert!(figure(&all[running - 1], "pfp.load", "request")["value"].as_f64() >= Some(0.0));
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

#[test]
fn ctrl_c_ends_push_after_a_last_push() {
    let place = Place::new();
    let (mut target, mut watch) = start(&place);
    let collector = Collector::new();
    let pusher = push(&place, &collector, &["-i", "1h", "--per-thread"]);
    collector.wait_for(1);
    target.go();
    target.reach("worked");
    let expected = own(watch.poll(), "parse");
    assert_eq!(expected.count, 900);
    os::signal(pusher.pid(), libc::SIGINT);
    let ended = pusher.end();
    assert!(ended.status.success() && ended.errors.is_empty(), "{}", ended.errors);
    let requests = collector.requests();
    assert_eq!(requests.len(), 2);
    let Some(all) = read(&place, &requests) else { return };
    let threads: Vec<&Value> = figures(&all[1], "pfp.calls", "parse").collect();
    let of = |figure: &&Value| figure["value"].as_u64().unwrap();
    assert_eq!(threads.iter().map(of).sum::<u64>(), 900);
    let lanes: BTreeSet<u64> =
        threads.iter().map(|f| f["attributes"]["pfp.lane"].as_u64().unwrap()).collect();
    assert_eq!((lanes.len(), threads.len() > 1), (threads.len(), true), "{threads:?}");
    let names: BTreeSet<&str> =
        threads.iter().map(|f| f["attributes"]["thread.name"].as_str().unwrap()).collect();
    assert!(names.is_subset(&BTreeSet::from(["one", "two"])), "{names:?}");
}

/// Replies of a collector that refuses for now, for good, or in part.
#[test]
fn the_collectors_replies_are_obeyed_and_reported() {
    let place = Place::new();
    let (_target, _) = start(&place);
    let collector = Collector::new();
    let later = |status, lines| Reply::Http(status, lines, b"too busy\n".to_vec());
    collector.next(later("429 Too Many Requests", "retry-after: 2\r\n"));
    collector.next(Reply::HangUp);
    // `partial_success`: 3 rejected, and a message.
    let partial = b"\x0a\x0a\x08\x03\x12\x06no\x1bway".to_vec();
    collector.next(Reply::Http("200 OK", "content-type: application/x-protobuf\r\n", partial));
    // `google.rpc.Status`: code 3, and a message; the request must not be retried.
    let status = b"\x08\x03\x12\x04ugly".to_vec();
    let head = "content-type: application/x-protobuf\r\n";
    collector.next(Reply::Http("400 Bad Request", head, status));
    let pusher = push(&place, &collector, &["-i", "100ms", "-n", "3"]);
    let ended = pusher.end();
    assert!(ended.status.success(), "{}", ended.errors);
    let (requests, answered) = (collector.requests(), collector.answered());
    // Three pushes, the first of them with three attempts.
    assert_eq!(requests.len(), 5);
    assert!(requests[1].at - answered[0] >= Duration::from_secs(2), "it is left alone");
    assert!(requests[2].at - requests[1].at >= Duration::from_secs(2), "pauses double");
    let said: Vec<&str> = ended.errors.lines().collect();
    let expected = [
        "429: too busy; trying again in 2 s",
        "; trying again in ",
        ": accepted again, after 2 failed pushes",
        ": accepted in part: 3 figures were refused: no",
        ": refused: 400 Bad Request: ugly",
    ];
    assert_eq!(said.len(), expected.len(), "{said:?}");
    for (said, expected) in said.iter().zip(expected) {
        assert!(said.starts_with("pfp-top: http://127.0.0.1:"), "{said}");
        assert!(said.contains(expected) && !said.contains('\u{1b}'), "{said}");
    }
    let Some(all) = read(&place, &requests) else { return };
    // Each attempt has the figures of its own moment.
    let elapsed = |figures: &[Value]| figure(figures, "pfp.elapsed", "")["value"].as_f64().unwrap();
    assert!(all.windows(2).all(|two| elapsed(&two[0]) < elapsed(&two[1])));
}

#[test]
fn push_outlives_timeouts_and_reports_undelivered_figures() {
    let place = Place::new();
    let (_target, _) = start(&place);
    let collector = Collector::new();
    // The collector accepts the request and never replies: the request times out.
    collector.next(Reply::Silence);
    let pusher = push(&place, &collector, &["-i", "1h", "--timeout", "200ms"]);
    collector.wait_for(2);
    os::signal(pusher.pid(), libc::SIGTERM);
    let ended = pusher.end();
    assert!(ended.status.success(), "{}", ended.errors);
    assert!(ended.errors.contains("timeout"), "{}", ended.errors);

    // No collector listens at all, even for the last push.
    let mut command = place.command(pfp_top());
    let mut pusher = Target::start(command.args(["push", "--endpoint", "http://127.0.0.1:1"]));
    wait_for("its first words", || !pusher.lines_so_far().is_empty());
    os::signal(pusher.pid(), libc::SIGINT);
    let ended = pusher.end();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.errors);
    assert!(ended.errors.contains("did not accept the last figures"), "{}", ended.errors);
    // Endpoints that would be redirected, or would send secrets unencrypted, are refused.
    for wrong in ["https://127.0.0.1:4318", "127.0.0.1:4318"] {
        let refused = place.pfp_top(&["push", "--endpoint", wrong]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
    // A redirect is reported, and not followed, although a collector listens there.
    let elsewhere = Collector::new();
    let to = format!("{}/v1/metrics", elsewhere.url());
    let location = format!("location: {to}\r\n").leak();
    collector.next(Reply::Http("307 Temporary Redirect", location, vec![]));
    let pusher = push(&place, &collector, &["-n", "1"]).end();
    assert_eq!(pusher.status.code(), Some(2));
    assert!(pusher.errors.contains(&format!("redirected to {to}")), "{}", pusher.errors);
    assert!(elsewhere.requests().is_empty());
}

#[test]
fn last_figures_of_ended_processes_wait_for_the_collector() {
    let place = Place::new();
    let collector = Collector::new();
    let pusher = push(&place, &collector, &["-i", "100ms"]);
    let targets = [start(&place), start(&place)];
    let pids = targets.each_ref().map(|(target, _)| target.pid());
    wait_for("both", || {
        let seen = pids.map(|pid| tells_of(&collector.requests(), pid));
        seen == [true, true]
    });
    // One process ends while the collector is unavailable.
    for _ in 0..2 {
        collector.next(Reply::Http("503 Service Unavailable", "retry-after: 1\r\n", vec![]));
    }
    let [(one, _), (two, _)] = targets;
    drop(one.end_well());
    let away = collector.requests().len();
    collector.wait_for(away + 4);
    os::signal(pusher.pid(), libc::SIGTERM);
    assert!(pusher.end().status.success());
    drop(two);
    let requests = collector.requests();
    let Some(all) = read(&place, &requests) else { return };
    let state = |figures: &[Value], pid: u32| {
        let of =
            |f: &&Value| f["name"] == "pfp.process.info" && f["resource"]["process.pid"] == pid;
        let mut found = figures.iter().filter(of);
        found.next().map(|f| f["attributes"]["pfp.process.state"].as_str().unwrap().to_owned())
    };
    let states = |pid| -> Vec<_> { all.iter().map(|figures| state(figures, pid)).collect() };
    let exited = Some("exited".to_owned());
    let of_one = states(pids[0]);
    assert!(of_one.contains(&exited), "{of_one:?}");
    // The last figures are sent until the collector accepts them, and never again.
    assert_eq!(of_one.last(), Some(&None), "{of_one:?}");
    assert_eq!(states(pids[1]).last(), Some(&Some("running".to_owned())));
}

/// Whether a request has the process' id as an attribute: a whole number in a `KeyValue`.
fn tells_of(requests: &[Request], pid: u32) -> bool {
    let mut wanted = b"process.pid\x12".to_vec();
    let mut varint = Vec::new();
    let mut left = pid;
    while left >= 0x80 {
        varint.push(left as u8 | 0x80);
        left >>= 7;
    }
    varint.push(left as u8);
    wanted.extend([varint.len() as u8 + 1, 0x18]);
    wanted.extend(varint);
    requests.iter().any(|r| r.body.windows(wanted.len()).any(|window| window == wanted))
}

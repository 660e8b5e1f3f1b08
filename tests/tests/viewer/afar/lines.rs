//! Slow connections, and hostile agents.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pfp_tests::place::{Place, pfp_top};
use pfp_tests::screen::row;
use pfp_tests::target::{Target, end_with_test, wait_for};
use pfp_tests::{needs_a_screen, together};
use serde_json::{Value, json};

use super::{MAGIC, Near, STEADY, VERSION, complaint};

/// The requests and replies that a connection carried.
#[derive(Clone, Debug, Default)]
struct Carried {
    pictures: usize,
    /// Number of pictures that were requested and are not delivered yet.
    owed: usize,
    /// Maximum of `owed` so far.
    most_owed: usize,
    /// For each request of records: the lanes, each with the first record requested.
    records: Vec<BTreeMap<u64, u64>>,
}

/// A connection to an agent on this machine through the test, with a delay of `takes` for each
/// picture. Returns the viewer's command, and the traffic.
fn slow_line(place: &Place, takes: Duration) -> (String, Arc<Mutex<Carried>>) {
    let [up, down] = ["up", "down"].map(|name| place.path(name));
    [&up, &down].into_iter().for_each(|path| fifo(path));
    let command = format!("cat {} & exec cat >{} #", down.display(), up.display());
    let mut agent = place.command(pfp_top());
    agent.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut agent = end_with_test(&mut agent).spawn().expect("pfp-top starts");
    let (mut requests, mut replies) = (agent.stdin.take().unwrap(), agent.stdout.take().unwrap());
    let carried = Arc::<Mutex<Carried>>::default();
    let asked = Arc::clone(&carried);
    thread::spawn(move || {
        let mut from = File::open(up).expect("it was made");
        while let Some((head, bytes)) = message(&mut from) {
            if head["ask"]["Picture"].is_object() {
                let mut asked = asked.lock().unwrap();
                asked.owed += 1;
                asked.most_owed = asked.most_owed.max(asked.owed);
            }
            if let Some(from) = head["ask"]["NewRecords"]["from"].as_array() {
                let number = |value: &Value| value.as_u64().expect("a number");
                let from = from.iter().map(|lane| (number(&lane[0]), number(&lane[1])));
                asked.lock().unwrap().records.push(from.collect());
            }
            requests.write_all(&bytes).expect("it reads");
        }
    });
    let came = Arc::clone(&carried);
    thread::spawn(move || {
        let mut to = File::create(down).expect("it was made");
        let mut magic = [0; 9];
        replies.read_exact(&mut magic).expect("it speaks");
        to.write_all(&magic).expect("it is read");
        while let Some((head, bytes)) = message(&mut replies) {
            let is_picture = head["answer"]["Picture"].is_object();
            if is_picture {
                thread::sleep(takes);
                let mut came = came.lock().unwrap();
                came.pictures += 1;
                came.owed -= 1;
            }
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = agent.wait();
    });
    (command, carried)
}

fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no zero in it");
    // SAFETY: the path is NUL-terminated and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

/// Reads the next message: its head, and all of its bytes; `None` at the end.
fn message(from: &mut impl Read) -> Option<(Value, Vec<u8>)> {
    let mut bytes = vec![0; 8];
    from.read_exact(&mut bytes).ok()?;
    let at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (whole, head) = (at(0), at(4));
    bytes.resize(8 + whole, 0);
    from.read_exact(&mut bytes[8..]).ok()?;
    Some((serde_json::from_slice(&bytes[8..8 + head]).expect("it is JSON"), bytes))
}

#[test]
fn a_slow_line_gets_fewer_pictures_and_nothing_piles_up() {
    let near = Near::new();
    let _target = near.0.start_watched(STEADY, &["far"]);
    let (via, carried) = slow_line(&near.0, Duration::from_secs(3));
    let mut viewer = near.0.command(pfp_top());
    viewer.args(["-b", "--json", "-i", "0.1", "--via", &via]);
    let mut viewer = Target::start(&mut viewer);
    let now = || carried.lock().unwrap().clone();
    wait_for("more updates than pictures", || {
        let updates = viewer.lines_so_far().len();
        now().pictures >= 2 && updates > now().pictures + 10
    });
    assert_eq!(now().most_owed, 1, "{:?}", now());
}

/// The timeline requests only those records of a thread that it does not have yet.
#[test]
fn each_record_is_requested_once() {
    needs_a_screen!();
    let near = Near::new();
    let _target = near.0.start_watched(STEADY, &["far"]);
    let (via, carried) = slow_line(&near.0, Duration::ZERO);
    let screen = near.0.screen(120, 16);
    screen.pfp_top(&format!("-i 0.2 --via '{via}'"));
    screen.wait_for("the table", |text| row(text, "tick").is_some());
    let asked = || carried.lock().unwrap().records.clone();
    assert!(asked().is_empty(), "{:?}", asked());
    screen.keys(&["4"]);
    let first = wait_for("records", || asked().into_iter().next());
    wait_for("newer ones alone", || {
        let later = asked().into_iter().skip(1);
        later.flatten().any(|(lane, from)| first.contains_key(&lane) && from > 0).then_some(())
    });
    let mut next: BTreeMap<u64, u64> = BTreeMap::new();
    for (lane, from) in asked().into_iter().flatten() {
        let before = next.insert(lane, from);
        assert!(before.is_none_or(|before| before <= from), "{:?}", asked());
    }
    screen.quit();
}

#[test]
fn the_age_of_a_picture_that_is_slow_to_come_is_on_the_screen() {
    needs_a_screen!();
    let near = Near::new();
    let _target = near.0.start_watched(STEADY, &["far"]);
    let (via, _carried) = slow_line(&near.0, Duration::from_secs(2));
    let screen = near.0.screen(140, 30);
    screen.pfp_top(&format!("--via '{via}' -i 0.2"));
    screen.wait_for("its age beside LIVE", |text| {
        let head = text.lines().next().unwrap_or_default();
        let age = head.split(" s old  LIVE").next().unwrap_or_default();
        let age = age.split_whitespace().last().and_then(|age| age.parse::<f64>().ok());
        row(text, "tick").is_some() && head.ends_with("LIVE") && age.is_some_and(|age| age > 0.4)
    });
}

/// A message with the bytes after its head.
fn packed(head: &Value, rest: &[u8]) -> Vec<u8> {
    let head = head.to_string();
    let lengths = [head.len() + rest.len(), head.len()].map(|len| (len as u32).to_le_bytes());
    [&lengths[0][..], &lengths[1], head.as_bytes(), rest].concat()
}

fn reply(number: u32, answer: Value) -> Vec<u8> {
    packed(&json!({ "number": number, "answer": answer }), &[])
}

fn hello() -> Vec<u8> {
    [MAGIC, &reply(0, json!({ "Hello": { "version": VERSION, "program": "0" } }))].concat()
}

fn found(candidates: Vec<Value>, more: Value) -> Value {
    let mut discovery = json!({
        "candidates": candidates, "searched": [], "stale": 0, "refused": [], "instead": null,
        "is_over": false, "via": null,
    });
    discovery.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "Found": discovery })
}

fn candidate(name: &str, number: usize) -> Value {
    json!({
        "name": name, "exe": "/far\u{1b}[2J", "pid": 7, "pid_here": null,
        "segment_id": format!("{number:032x}"), "state": "running", "started_unix_ns": 5,
        "points": u32::MAX, "run": 0, "awaited": false,
    })
}

/// Text as a Zstandard frame without compression.
fn zstd(text: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x50];
    for part in text.chunks(100_000) {
        frame.extend_from_slice(&((part.len() as u32) << 3).to_le_bytes()[..3]);
        frame.extend_from_slice(part);
    }
    frame
}

/// Runs the viewer with little memory, and an agent that sends the bytes `says` and then runs the
/// shell command `then`.
fn hear(near: &Near, says: &[u8], then: &str, arguments: &[&str]) -> Output {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let file = near.0.path(&format!("says-{}", NUMBER.fetch_add(1, Relaxed)));
    std::fs::write(&file, says).expect("there is room");
    let via = format!("cat {}; {then} #", file.display());
    let mut command = near.0.command("sh");
    let script = "ulimit -v 800000 && exec \"$@\"";
    command.args(["-c", script, "sh"]).arg(pfp_top()).args(arguments).args(["--via", &via]);
    let output = command.output().expect("sh starts");
    let said = complaint(&output);
    assert!(output.status.code().is_some() && !said.contains("panicked"), "{said}");
    let printed = String::from_utf8_lossy(&output.stdout);
    for text in [&said[..], &printed] {
        assert!(!text.contains(['\x1b', '\x07', '\r', '\u{202e}', '\u{9b}']), "{text:?}");
    }
    output
}

/// Shell command for an agent that sends nothing more, and stays until the viewer has ended.
const STAYS: &str = "cat >/dev/null";

#[test]
fn frames_that_are_valid_and_hostile_reach_no_terminal() {
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    let evil = "\u{1b}]0;owned\u{7}\r\u{202e}\u{9b}2J";
    let list = [hello(), reply(1, found(vec![candidate(evil, 1)], json!({})))].concat();
    let output = hear(&near, &list, STAYS, &["list"]);
    pfp_tests::well(&output);
    let worse = [
        json!({ "instead": evil }),
        json!({ "searched": [evil, "/run"] }),
        json!({ "via": evil }),
        json!({ "refused": [{ "pid": 7, "why": { "Version": evil } }] }),
    ];

    let mut snapshot = serde_json::to_value(near.0.snapshot(&target)).expect("it is JSON");
    snapshot["process"]["name"] = json!(evil);
    snapshot["process"]["host"] = json!(evil);
    snapshot["records"] = json!([]);
    for point in snapshot["points"].as_array_mut().unwrap() {
        point["name"] = json!(evil);
        point["file"] = json!(evil);
    }
    for lane in snapshot["lanes"].as_array_mut().unwrap() {
        lane["name"] = json!(evil);
    }
    for cell in snapshot["cells"].as_array_mut().unwrap() {
        for number in ["count", "exclusive", "inclusive", "max"] {
            cell["stats"][number] = json!(u64::MAX);
        }
    }
    let text = format!("{{\"usage\":null}}\n{snapshot}");
    let picture = json!({ "number": 3, "answer": { "Picture": { "is_key": true } } });
    let whole = [
        list,
        reply(2, json!({ "Attached": { "read_only": null } })),
        packed(&picture, &zstd(text.as_bytes())),
    ]
    .concat();
    let nothing = worse.iter().flat_map(|more| {
        let nothing = [hello(), reply(1, found(vec![], more.clone()))].concat();
        [&["list"][..], &["--once"]].map(|arguments| (nothing.clone(), arguments, false))
    });
    let shown = [&["--once"][..], &["--once", "--json"], &["export", "openmetrics"]];
    let shown = shown.map(|arguments| (whole.clone(), arguments, true));
    together(nothing.chain(shown), |(says, arguments, is_shown)| {
        let output = hear(&near, &says, STAYS, arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_right = if is_shown { text.contains("owned") } else { !output.status.success() };
        assert!(is_right, "{text}{}", complaint(&output));
    });
}

#[test]
fn a_discovery_without_end_takes_little_memory() {
    let near = Near::new();
    // Many times the size of the viewer's buffer. More would take a busy machine longer than the
    // viewer waits for a reply.
    let one = candidate("a", 0).to_string().len() + 1;
    let all = (0..(16 << 20) / one).map(|number| candidate("a", number)).collect();
    let many = [hello(), reply(1, found(all, json!({})))].concat();
    let output = hear(&near, &many, STAYS, &["list"]);
    pfp_tests::well(&output);
    assert!(
        complaint(&output).contains("expected at most 4096 processes"),
        "{}",
        complaint(&output)
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1 + 4096);

    // The agent floods the viewer with replies to no request, and never sends the expected one.
    let flood = near.0.path("flood");
    let unasked = reply(77, found(vec![candidate("a", 1)], json!({})));
    std::fs::write(&flood, unasked.repeat(1000)).expect("there is room");
    let then = format!("while cat {}; do :; done", flood.display());
    let output = hear(&near, &hello(), &then, &["list"]);
    assert!(!output.status.success());
    assert!(
        complaint(&output).contains("expected an answer, found none"),
        "{}",
        complaint(&output)
    );
}

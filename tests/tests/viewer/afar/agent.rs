//! The agent's protocol byte by byte: its replies, and the switches that it restores.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, Output, Stdio};

use pfp_read::snapshot::PointState;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::{Target, end_with_test, wait_for};
use pfp_tests::{os, together};
use serde_json::{Value, json};

use super::{MAGIC, Near, STEADY, VERSION, complaint};

/// An agent to which the test sends requests itself.
struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    number: u32,
    /// Length of the last reply in bytes.
    came: usize,
}

impl Agent {
    fn start(place: &Place) -> Self {
        let mut command = place.command(pfp_top());
        command.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = end_with_test(&mut command).spawn().expect("pfp-top starts");
        let input = child.stdin.take();
        let mut magic = [0; 9];
        child.stdout.as_mut().unwrap().read_exact(&mut magic).expect("it speaks");
        assert_eq!(magic, MAGIC);
        Self { child, input, number: 0, came: 0 }
    }

    /// Sends a request, and waits for the reply.
    fn ask(&mut self, ask: Value) -> Value {
        self.send(ask);
        let reply = self.read();
        assert_eq!(reply["number"], self.number - 1);
        reply["answer"].clone()
    }

    /// Sends a request, and reads no reply.
    fn send(&mut self, ask: Value) {
        let head = json!({ "number": self.number, "ask": ask }).to_string();
        let len = (head.len() as u32).to_le_bytes();
        let input = self.input.as_mut().unwrap();
        input.write_all(&[&len[..], &len[..], head.as_bytes()].concat()).expect("it reads");
        self.number += 1;
    }

    /// Reads the next reply.
    fn read(&mut self) -> Value {
        let mut lengths = [0; 8];
        let output = self.child.stdout.as_mut().unwrap();
        output.read_exact(&mut lengths).expect("it answers");
        let at = |at: usize| u32::from_le_bytes(lengths[at..at + 4].try_into().unwrap()) as usize;
        let mut message = vec![0; at(0)];
        self.came = lengths.len() + message.len();
        output.read_exact(&mut message).expect("it answers");
        serde_json::from_slice(&message[..at(4)]).expect("it is JSON")
    }

    /// Bytes that the agent has written and the test has not read.
    fn unread(&self) -> libc::c_int {
        let output = self.child.stdout.as_ref().unwrap();
        let mut bytes = 0;
        // SAFETY: the descriptor is open, and `bytes` is valid for writes.
        assert_eq!(unsafe { libc::ioctl(output.as_raw_fd(), libc::FIONREAD, &raw mut bytes) }, 0);
        bytes
    }

    /// Requests a picture, and promises the next request within `within_s` seconds.
    fn picture(&mut self, within_s: Option<u64>) -> Value {
        self.ask(json!({ "Picture": { "source": 0, "within_s": within_s, "waits": "nothing" } }))
    }

    /// Attaches to a process, and disables one of its points.
    fn switch_off(&mut self, place: &Place, target: &Target, name: &str, keep: bool) {
        let hello = self.ask(json!({ "Hello": { "keep": keep } }));
        assert_eq!(hello["Hello"]["version"], VERSION, "{hello}");
        let snapshot = place.snapshot(target);
        let segment = &snapshot.process.segment_id;
        let point = snapshot.points.iter().find(|point| point.name == name).unwrap().id;
        let attach = json!({ "Attach": { "source": 0, "segment_id": segment } });
        let attached = self.ask(attach);
        assert!(attached["Attached"].is_object(), "{attached}");
        assert!(self.picture(None)["Picture"].is_object());
        let act = json!({ "Act": { "source": 0, "changes": [{ "Disable": point }] } });
        assert_eq!(self.ask(act), json!({ "Changed": { "results": [{ "Ok": "on" }] } }));
    }

    /// Sends these last bytes, closes the connection, and waits for the agent's end.
    fn cut(mut self, last: &[u8]) -> Output {
        let mut input = self.input.take().unwrap();
        // The agent may have ended already.
        let _ = input.write_all(last);
        drop(input);
        self.child.wait_with_output().expect("it ends")
    }
}

#[test]
fn switches_are_restored_only_when_the_connection_breaks() {
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    wait_for("the point", || {
        near.0.snapshot(&target).points.iter().any(|point| point.name == "tick")
    });
    let goodbye = br#"{"number":9,"ask":"Goodbye"}"#;
    let len = (goodbye.len() as u32).to_le_bytes();
    let goodbye = [&len[..], &len[..], goodbye].concat();
    for (keep, last, left) in [
        (false, &b""[..], PointState::On),
        (false, &goodbye[..7], PointState::On),
        (false, &b"\xff\xff\xff\xff\xff\xff\xff\xff"[..], PointState::On),
        (true, &b""[..], PointState::Off),
        (false, &goodbye[..], PointState::Off),
    ] {
        let enabled = near.0.pfp_top(&["enable", "tick"]);
        pfp_tests::well(&enabled);
        let mut agent = Agent::start(&near.0);
        agent.switch_off(&near.0, &target, "tick", keep);
        assert_eq!(near.state(&target, "tick"), PointState::Off);
        let ended = agent.cut(last);
        assert!(!complaint(&ended).contains("panicked"), "{}", complaint(&ended));
        assert_eq!(near.state(&target, "tick"), left, "{keep} {last:?}");
    }
    // On SIGTERM and SIGHUP, the agent restores the switch and ends, as when the connection breaks.
    // It ignores SIGINT, which Ctrl-C sends to the agent as well as to the viewer.
    let enabled = near.0.pfp_top(&["enable", "tick"]);
    pfp_tests::well(&enabled);
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let mut agent = Agent::start(&near.0);
        agent.switch_off(&near.0, &target, "tick", false);
        os::signal(agent.child.id(), libc::SIGINT);
        assert!(agent.ask(json!("Discover"))["Found"].is_object());
        assert_eq!(near.state(&target, "tick"), PointState::Off);
        os::signal(agent.child.id(), signal);
        wait_for("it to be put back", || near.state(&target, "tick") == PointState::On);
        assert!(agent.child.wait().expect("it is ours").success());
    }
    // A command such as `disable` says goodbye to the agent, so its change stays.
    let output = near.run(&near.via(), &["disable", "tick"]);
    pfp_tests::well(&output);
    assert_eq!(near.state(&target, "tick"), PointState::Off);
    let output = near.run(&near.via(), &["enable", "tick"]);
    pfp_tests::well(&output);
    assert_eq!(near.state(&target, "tick"), PointState::On);
}

/// A network may be down for hours before either end learns of it. So the viewer promises when it
/// sends the next request, and the agent restores the switches if none arrives by then.
#[test]
fn switches_are_restored_when_the_viewer_breaks_its_promise() {
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    wait_for("the point", || {
        near.0.snapshot(&target).points.iter().any(|point| point.name == "tick")
    });
    let mut agent = Agent::start(&near.0);
    agent.switch_off(&near.0, &target, "tick", false);
    assert!(agent.picture(Some(3600))["Picture"].is_object());
    assert_eq!(near.state(&target, "tick"), PointState::Off);
    assert!(agent.picture(Some(1))["Picture"].is_object());
    wait_for("it to be put back", || near.state(&target, "tick") == PointState::On);
    // The connection continues as before.
    assert!(agent.picture(Some(3600))["Picture"].is_object());
    assert!(agent.child.try_wait().expect("it is ours").is_none());

    let mut agent = Agent::start(&near.0);
    agent.switch_off(&near.0, &target, "tick", true);
    assert!(agent.picture(Some(0))["Picture"].is_object());
    assert!(agent.ask(json!("Discover"))["Found"].is_object());
    assert_eq!(near.state(&target, "tick"), PointState::Off, "it was to stay");
}

/// A stopped viewer reads no replies. A reply can exceed the size of a pipe, so the agent may be
/// blocked in a write when it has to restore the switches.
#[test]
fn switches_are_restored_while_replies_stay_unread() {
    let near = Near::new();
    let target = near.0.start_watched(env!("CARGO_BIN_EXE_hundred"), &["far", "8", "1000"]);
    wait_for("all threads in all points", || near.0.snapshot(&target).cells.len() >= 8000);
    // A full pipe, whose last page may be partly empty.
    let full = (64 << 10) - 4096;
    let picture = |within_s: u64| json!({ "Picture": { "source": 1, "within_s": within_s, "waits": "nothing" } });
    // Attaches, disables a point, and leaves a reply unread.
    let stuck = |point: &str, within_s: u64| {
        let mut agent = Agent::start(&near.0);
        let enabled = near.0.pfp_top(&["enable", point]);
        pfp_tests::well(&enabled);
        agent.switch_off(&near.0, &target, point, false);
        assert_eq!(near.state(&target, point), PointState::Off);
        // The first picture of a source is complete.
        let segment = near.0.snapshot(&target).process.segment_id;
        agent.ask(json!({ "Attach": { "source": 1, "segment_id": segment } }));
        agent.send(picture(within_s));
        wait_for("a reply that stops", || agent.unread() >= full);
        agent
    };
    let is_back = |point: &str| near.state(&target, point) == PointState::On;

    type Scene<'a> = &'a (dyn Fn(&str) + Sync);
    let scenes: [(&str, Scene<'_>); 5] = [
        ("io.0", &|point| {
            let _agent = stuck(point, 1);
            wait_for("it to be put back when the promise is broken", || is_back(point));
        }),
        ("io.1", &|point| {
            let mut agent = stuck(point, 3600);
            agent.input = None;
            wait_for("it to be put back at the end of the input", || is_back(point));
            wait_for("its end", || agent.child.try_wait().expect("it is ours").is_some());
        }),
        ("io.2", &|point| {
            let agent = stuck(point, 3600);
            os::signal(agent.child.id(), libc::SIGTERM);
            wait_for("it to be put back by a signal", || is_back(point));
        }),
        ("io.3", &|point| {
            let mut agent = stuck(point, 1);
            wait_for("it to be put back", || is_back(point));
            // The connection continues as before.
            assert!(agent.read()["answer"]["Picture"].is_object());
            assert!(agent.picture(Some(3600))["Picture"].is_object());
        }),
        ("io.4", &|point| {
            // The viewer says goodbye without having read the reply: the point stays off.
            let mut agent = stuck(point, 3600);
            agent.send(json!("Goodbye"));
            agent.input = None;
            wait_for("its end", || agent.child.try_wait().expect("it is ours").is_some());
            assert_eq!(near.state(&target, point), PointState::Off);
        }),
    ];
    together(scenes, |(point, scene)| scene(point));
}

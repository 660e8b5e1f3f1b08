//! A stand-in for an OpenTelemetry collector: it records each request, and sends the replies that
//! the test sets.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

use crate::target::{DEADLINE, wait_for};
use crate::tools::readers;

/// The reply to a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A status with its phrase, header lines, and a body.
    Http(&'static str, &'static str, Vec<u8>),
    /// No reply: the connection is closed.
    HangUp,
    /// No reply: the connection stays open.
    Silence,
}

/// A request that was received.
#[derive(Clone, Debug)]
pub struct Request {
    /// The request line and the header, in lower case.
    pub head: String,
    /// The body as it was received.
    pub body: Vec<u8>,
    /// The time at which it was complete.
    pub at: Instant,
}

impl Request {
    /// The value of a header field, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Request>,
    replies: VecDeque<Reply>,
    /// The time at which each request was answered.
    answered: Vec<Instant>,
}

/// A collector on a port of its own.
#[derive(Debug)]
pub struct Collector {
    address: String,
    state: Arc<Mutex<State>>,
}

impl Default for Collector {
    fn default() -> Self {
        Self::new()
    }
}

impl Collector {
    /// A collector that accepts everything.
    #[must_use]
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || converse(stream, &state));
            }
        });
        Self { address, state }
    }

    /// The URL to push to, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the reply to the next request, after those that are set already.
    pub fn next(&self, reply: Reply) {
        self.state.lock().expect("nobody panics with it").replies.push_back(reply);
    }

    /// The requests received so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().expect("nobody panics with it").requests.clone()
    }

    /// The time at which each request was answered.
    #[must_use]
    pub fn answered(&self) -> Vec<Instant> {
        self.state.lock().expect("nobody panics with it").answered.clone()
    }

    /// Waits until `count` requests have been received.
    pub fn wait_for(&self, count: usize) -> Vec<Request> {
        wait_for("a request", || {
            let requests = self.requests();
            (requests.len() >= count).then_some(requests)
        })
    }
}

fn converse(mut stream: TcpStream, state: &Mutex<State>) {
    let _ = stream.set_read_timeout(Some(DEADLINE));
    let mut reader = BufReader::new(stream.try_clone().expect("a socket has two ends"));
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let mut request =
            Request { head: head.to_lowercase(), body: Vec::new(), at: Instant::now() };
        let length = request.header("content-length").expect("the request has a length");
        request.body = vec![0; length.trim().parse().expect("a number")];
        if reader.read_exact(&mut request.body).is_err() {
            return;
        }
        request.at = Instant::now();
        let reply = {
            let mut state = state.lock().expect("nobody panics with it");
            state.requests.push(request);
            let taken = Reply::Http("200 OK", "content-type: application/x-protobuf\r\n", vec![]);
            state.replies.pop_front().unwrap_or(taken)
        };
        match reply {
            Reply::Http(status, lines, body) => {
                let head =
                    format!("HTTP/1.1 {status}\r\n{lines}content-length: {}\r\n\r\n", body.len());
                state.lock().expect("nobody panics with it").answered.push(Instant::now());
                let _ = stream.write_all(&[head.as_bytes(), &body].concat());
            }
            Reply::HangUp => return,
            Reply::Silence => {
                let _ = reader.read_line(&mut String::new());
                return;
            }
        }
    }
}

/// Decodes the bodies of requests with the published message definitions; `None` if no decoder is
/// installed.
#[must_use]
pub fn decoded(folder: &Path, bodies: &[Vec<u8>]) -> Option<Vec<Value>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(readers("what is pushed")?);
    command.arg(root.join("tui/tests/readers.py")).arg("otlp").stdin(Stdio::null());
    for (number, body) in bodies.iter().enumerate() {
        let file = folder.join(format!("request-{number}"));
        std::fs::write(&file, body).expect("a file can be written");
        command.arg(file);
    }
    let output = command.output().expect("the reader starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("the reader prints JSON"))
}

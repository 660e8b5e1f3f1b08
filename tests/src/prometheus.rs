//! Runs a real Prometheus server that scrapes an endpoint, and queries it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::target::{DEADLINE, wait_for};

/// The response of an HTTP server.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The header, including the status line.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// The value of a header field, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }
}

/// Sends a request to an address and reads until the connection ends; `None` if the server sends
/// nothing.
///
/// # Panics
///
/// Panics if no server listens, or the response is not HTTP.
#[must_use]
pub fn ask(address: &str, request: &str) -> Option<HttpResponse> {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket has a timeout");
    // A server that refuses a request early may close the connection before it has read the whole
    // request.
    let _ = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    // If the server resets the connection, the bytes that arrived before that are used.
    let _ = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8(bytes[..end].to_vec()).expect("a head is text");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Some(HttpResponse {
        status: status.unwrap_or_else(|| panic!("no status in {head:?}")),
        head,
        body: bytes[end + 4..].to_vec(),
    })
}

/// Gets a path, with these additional header lines.
#[must_use]
pub fn get(address: &str, path: &str, lines: &[&str]) -> HttpResponse {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{lines}\r\n");
    ask(address, &request).expect("the server answers")
}

/// A test's own server. Dropping it kills the server and removes its data.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    address: String,
    folder: PathBuf,
}

/// One series of a query's result.
#[derive(Clone, Debug)]
pub struct Series {
    /// The labels.
    pub labels: Value,
    /// Seconds since the epoch, and the value at that time.
    pub samples: Vec<(f64, f64)>,
}

impl Series {
    /// The value of a label; empty if the series has no such label.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.labels[name].as_str().unwrap_or("")
    }
}

impl Prometheus {
    /// Starts a server with these features, which scrapes one address all the time. It creates
    /// `folder` for its data.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    #[must_use]
    pub fn start(folder: &Path, scraped: &str, features: &[&str]) -> Self {
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
             scrape_configs: [{{job_name: pfp, static_configs: [{{targets: ['{scraped}']}}]}}]\n"
        );
        Self::with(folder, &config, features)
    }

    /// Starts a server with this configuration.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    #[must_use]
    pub fn with(folder: &Path, config: &str, features: &[&str]) -> Self {
        std::fs::create_dir_all(folder).expect("a folder can be made");
        std::fs::write(folder.join("prometheus.yml"), config).expect("a file can be written");
        for _ in 0..5 {
            // Another process may take the port before the server binds it; then the loop tries
            // another port.
            let free = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
            let address = free.local_addr().expect("it is bound").to_string();
            drop(free);
            let log = std::fs::File::create(folder.join("log")).expect("a file can be made");
            let mut command = Command::new("prometheus");
            command
                .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
                .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
                .arg(format!("--web.listen-address={address}"))
                .args(features.iter().map(|feature| format!("--enable-feature={feature}")))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log);
            let child = command.spawn().expect("prometheus starts");
            let mut server = Self { child, address, folder: folder.to_owned() };
            let ready = wait_for("prometheus to be ready", || {
                if server.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                    return Some(false);
                }
                TcpStream::connect(&server.address).ok()?;
                (get(&server.address, "/-/ready", &[]).status == 200).then_some(true)
            });
            if ready {
                return server;
            }
        }
        let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        panic!("prometheus does not come up: {log}");
    }

    /// The server's log.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Runs a PromQL query, at a time in seconds since the epoch or now.
    ///
    /// # Panics
    ///
    /// Panics if the query is refused.
    #[must_use]
    pub fn query(&self, query: &str, time: Option<f64>) -> Vec<Series> {
        let time = time.map_or(String::new(), |time| format!("&time={time:.3}"));
        let answer = self.api(&format!("query?query={}{time}", encoded(query)));
        let result = answer["result"].as_array().expect("there is a result").clone();
        let sample = |pair: &Value| {
            let value = pair[1].as_str().and_then(|value| value.parse().ok());
            Some((pair[0].as_f64()?, value?))
        };
        let series = result.iter().map(|series| Series {
            labels: series["metric"].clone(),
            samples: match series["values"].as_array() {
                Some(samples) => samples.iter().filter_map(sample).collect(),
                None => sample(&series["value"]).into_iter().collect(),
            },
        });
        series.collect()
    }

    /// The response of a path of the HTTP API.
    ///
    /// # Panics
    ///
    /// Panics if the server refuses the request.
    #[must_use]
    pub fn api(&self, path: &str) -> Value {
        let answer = get(&self.address, &format!("/api/v1/{path}"), &[]);
        let json: Value = serde_json::from_slice(&answer.body).expect("the answer is JSON");
        assert_eq!(json["status"], "success", "{path}: {json}");
        json["data"].clone()
    }

    /// The only value of a query's result; `None` if there is none yet.
    #[must_use]
    pub fn value(&self, query: &str, time: Option<f64>) -> Option<f64> {
        let series = self.query(query, time);
        assert!(series.len() <= 1, "{query} has several answers: {series:?}");
        series.first()?.samples.first().map(|(_, value)| *value)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Encodes a text as part of a URL.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

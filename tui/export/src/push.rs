//! Sends figures to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! ```text
//! serve::Pool -> export::otlp -> POST /v1/metrics -> collector
//! ```
//!
//! All sums are cumulative, so figures that could not be sent are not stored: the next push
//! includes them. A failed push is tried again a few times with current figures, after a pause that
//! doubles each time; see [`Pause`].

use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::time::{Duration, Instant, SystemTime};

pub use hyper::Uri;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use ureq::Agent;

use crate::serve::packed;
use crate::{Subject, otlp};
use pfp_read::text;

/// Where a collector on the same machine listens.
pub const ENDPOINT: &str = "http://127.0.0.1:4318/v1/metrics";
/// Number of attempts at a push before the next push replaces it.
pub const PUSH_ATTEMPTS: u32 = 5;
/// Pause after the first failed attempt; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause that a collector may ask for.
const LONGEST: Duration = Duration::from_secs(3600);
/// Maximum number of bytes of an answer that are read.
const ANSWER: u64 = 64 << 10;
const PATH: &str = "/v1/metrics";
const PROTOBUF: &str = "application/x-protobuf";

/// Parses the endpoint; the usual path is added if the endpoint has no path.
///
/// # Errors
///
/// If the text is not an HTTP URL. The error says what was expected.
pub fn endpoint(text: &str) -> Result<Uri, String> {
    let wrong = || format!("expected a URL such as {ENDPOINT}");
    let uri: Uri = text.trim().parse().map_err(|_| wrong())?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(host)) if !host.is_empty() => {}
        (Some("https"), _) => {
            return Err(
                "https is not supported: send to a collector on this machine over http, which \
                 forwards the figures"
                    .into(),
            );
        }
        _ => return Err(wrong()),
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Ok(uri);
    }
    let mut parts = uri.into_parts();
    parts.path_and_query = PATH.parse().ok();
    Uri::from_parts(parts).map_err(|_| wrong())
}

/// Sends figures to a collector.
#[derive(Debug)]
pub struct Pusher {
    agent: Agent,
    endpoint: Uri,
    gzip: bool,
    timeout: Duration,
}

/// The result of a push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Number of requests that the collector accepted, in whole or in part.
    pub taken: u64,
    /// The first final rejection by the collector, or the first remark with which it accepted a
    /// request.
    pub refused: Option<String>,
    /// Why the push must be tried again, and the pause that the collector asked for.
    pub again: Option<(String, Option<Duration>)>,
    /// Whether the collector rejected a whole request for good. The other requests were still sent.
    pub is_lost: bool,
}

impl Pushed {
    /// Whether every request was accepted, in whole or in part.
    pub fn is_done(&self) -> bool {
        self.again.is_none() && !self.is_lost
    }
}

/// The result of one request.
enum PushOutcome {
    Taken(Option<String>),
    Refused(String),
    Again(String, Option<Duration>),
}

impl Pusher {
    /// Makes a pusher for this endpoint; `timeout` is the limit for each request.
    pub fn new(endpoint: Uri, gzip: bool, timeout: Duration) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // Follow no redirects: figures must only go to the host that the user named.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("pfp-top/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Self { agent, endpoint, gzip, timeout }
    }

    /// Sends the figures of these processes, until a deadline at the latest, and as long as
    /// `wanted` returns true.
    pub fn push(
        &self,
        subjects: &[Subject<'_>],
        until: Option<Instant>,
        wanted: impl Fn() -> bool,
    ) -> Pushed {
        let mut pushed = Pushed::default();
        // The error is recorded in `pushed`.
        let _ = otlp::requests(subjects, |request| {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if !wanted() || left.is_some_and(|left| left.is_zero()) {
                pushed.again = Some(("it was not sent as a whole".into(), None));
                return Err(());
            }
            let timeout = left.map_or(self.timeout, |left| left.min(self.timeout));
            match self.post(request.encode_to_vec(), timeout) {
                PushOutcome::Taken(remark) => {
                    pushed.taken += 1;
                    pushed.refused = pushed.refused.take().or(remark);
                    Ok(())
                }
                PushOutcome::Refused(why) => {
                    pushed.refused.get_or_insert(why);
                    pushed.is_lost = true;
                    Ok(())
                }
                PushOutcome::Again(why, after) => {
                    pushed.again = Some((why, after));
                    Err(())
                }
            }
        });
        pushed
    }

    fn post(&self, mut body: Vec<u8>, timeout: Duration) -> PushOutcome {
        let mut request = self.agent.post(&self.endpoint).header("Content-Type", PROTOBUF);
        if self.gzip {
            match packed(&body) {
                Ok(packed) => body = packed,
                Err(error) => return PushOutcome::Refused(error.to_string()),
            }
            request = request.header("Content-Encoding", "gzip");
        }
        let sent = request.config().timeout_global(Some(timeout)).build().send(&body[..]);
        let mut answer = match sent {
            Ok(answer) => answer,
            // The collector may be starting, or the network may come back.
            Err(error) => {
                return PushOutcome::Again(text::clean(&error.to_string()).into_owned(), None);
            }
        };
        let (status, headers) = (answer.status(), answer.headers().clone());
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mut bytes = Vec::new();
        let whole = answer.body_mut().as_reader().take(ANSWER).read_to_end(&mut bytes);
        match status.as_u16() {
            // An answer that was cut off cannot be parsed.
            200..=299 => PushOutcome::Taken(whole.ok().and_then(|_| remark(&bytes))),
            // By the specification, only these statuses are worth a retry.
            429 | 502 | 503 | 504 => {
                let after =
                    header("retry-after").and_then(|value| retry_after(value, SystemTime::now()));
                PushOutcome::Again(
                    status_with_message(status.as_str(), &bytes, header("content-type")),
                    after,
                )
            }
            300..=399 => {
                let to = text::clean(header("location").unwrap_or("nowhere")).into_owned();
                PushOutcome::Refused(format!("{status}: redirected to {to}, which is not followed"))
            }
            _ => PushOutcome::Refused(status_with_message(
                &status.to_string(),
                &bytes,
                header("content-type"),
            )),
        }
    }
}

/// The collector's answer to an accepted request: a message about rejected data points, or a
/// remark. `None` if the collector accepted all data points without a remark.
fn remark(answer: &[u8]) -> Option<String> {
    let partial = ExportMetricsServiceResponse::decode(answer).ok()?.partial_success?;
    let message = text::clean(&partial.error_message).into_owned();
    match (partial.rejected_data_points, message.is_empty()) {
        (0, true) => None,
        (0, false) => Some(message),
        (n, true) => Some(format!("{n} figures were refused")),
        (n, false) => Some(format!("{n} figures were refused: {message}")),
    }
}

/// The fields of `google.rpc.Status` in use.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
}

/// A status with the collector's message.
fn status_with_message(status: &str, body: &[u8], content_type: Option<&str>) -> String {
    let message = match content_type.is_some_and(|kind| kind.starts_with(PROTOBUF)) {
        true => RpcStatus::decode(body).map(|status| status.message).unwrap_or_default(),
        false => String::from_utf8_lossy(body).lines().next().unwrap_or_default().to_owned(),
    };
    let message: String = text::clean(&message).chars().take(200).collect();
    match message.trim() {
        "" => status.to_owned(),
        message => format!("{status}: {message}"),
    }
}

/// Parses a pause: seconds, or a date.
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let after = match value.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        // A date in the past means no pause.
        Err(_) => {
            let date = httpdate::parse_http_date(value.trim()).ok()?;
            date.duration_since(now).unwrap_or_default()
        }
    };
    Some(after.min(LONGEST))
}

/// The time until the next attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    failed: u32,
}

impl Pause {
    /// The pause before the next attempt at the same push. `None` after [`PUSH_ATTEMPTS`] attempts.
    /// The pause is at least the one that the collector requested. Up to a quarter is added at
    /// random, so that pushers that failed together do not retry together.
    pub fn after_failure(&mut self, requested: Option<Duration>) -> Option<Duration> {
        self.failed += 1;
        if self.failed >= PUSH_ATTEMPTS {
            self.failed = 0;
            return None;
        }
        let pause = FIRST_PAUSE * 2_u32.pow(self.failed - 1);
        let random = RandomState::new().hash_one(0) % 256;
        let pause = pause + pause.mul_f64(random as f64 / 1024.0);
        Some(requested.map_or(pause, |requested| requested.max(pause)))
    }

    /// Makes the next failure count as the first, after a successful push.
    pub fn end(&mut self) {
        self.failed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_and_its_usual_path_may_be_left_out() {
        for (given, meant) in [
            ("http://127.0.0.1:4318", ENDPOINT),
            ("http://127.0.0.1:4318/", ENDPOINT),
            ("http://[::1]:4318", "http://[::1]:4318/v1/metrics"),
            ("http://host/otlp/v1/metrics", "http://host/otlp/v1/metrics"),
            ("http://host/?key=1", "http://host/?key=1"),
        ] {
            assert_eq!(endpoint(given).map(|uri| uri.to_string()), Ok(meant.to_owned()), "{given}");
        }
        for wrong in ["", "4318", "127.0.0.1:4318", "ftp://host", "http://", "unix:/x", "/v1"] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
        assert!(endpoint("https://host").unwrap_err().contains("https is not supported"));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let requested = |value: &str| retry_after(value, now).map(|requested| requested.as_secs());
        assert_eq!(requested("7"), Some(7));
        assert_eq!(requested("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30));
        assert_eq!(requested("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0), "past");
        assert_eq!(requested("99999999"), Some(3600));
        assert_eq!((requested("soon"), requested("-1")), (None, None));
    }

    #[test]
    fn pauses_double_up_to_the_last_try() {
        let mut pause = Pause::default();
        for _ in 0..2 {
            for seconds in [1.0, 2.0, 4.0, 8.0] {
                let found = pause.after_failure(None).unwrap().as_secs_f64();
                assert!((seconds..seconds * 1.25).contains(&found), "{found} for {seconds}");
            }
            assert_eq!(pause.after_failure(Some(LONGEST)), None);
        }
        assert_eq!(pause.after_failure(Some(LONGEST)), Some(LONGEST));
        pause.end();
        assert!(pause.after_failure(Some(Duration::ZERO)).unwrap() < Duration::from_secs(2));
    }

    #[test]
    fn a_collectors_words_are_clean_and_short() {
        let status = RpcStatus { message: format!("no\u{1b}[2J {}", "x".repeat(1000)) };
        let said = status_with_message("400 Bad Request", &status.encode_to_vec(), Some(PROTOBUF));
        assert!(said.starts_with("400 Bad Request: no") && said.len() < 300, "{said}");
        assert!(!said.contains('\u{1b}'), "{said}");
        assert_eq!(status_with_message("503", b"busy\nand more", Some("text/plain")), "503: busy");
        assert_eq!(status_with_message("503", b"", None), "503");
        assert_eq!((remark(b""), remark(b"\xff\xff")), (None, None));
    }
}

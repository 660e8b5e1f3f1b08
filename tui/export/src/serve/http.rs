//! The endpoint: `GET /metrics`, which changes nothing.
//!
//! One thread answers. A connection has one request and is then closed. The number of connections,
//! their time and the size of requests are limited. If there are too many connections, the oldest
//! is closed, so that a slow client does not block the others.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::{AbortHandle, LocalSet};

use super::Pool;
use super::negotiate::{Negotiated, is_local};

/// Maximum number of connections at a time.
const CONNECTIONS: usize = 256;
/// The time that a connection always gets, however many others arrive.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for a request's head.
const HEAD: Duration = Duration::from_secs(3);
/// Time limit for a whole connection.
const WHOLE: Duration = Duration::from_secs(10);
/// Maximum size of a request's head.
const HEAD_BYTES: usize = 16 << 10;
/// Maximum number of headers in a request.
const HEADERS: usize = 64;
/// Pause after a failed accept, such as without free descriptors.
const LATER: Duration = Duration::from_millis(100);

/// Answers requests until a signal asks to end. With `local`, answers only requests that name this
/// machine itself.
///
/// # Errors
///
/// If the server cannot be set up.
pub fn serve(
    listener: TcpListener,
    pool: Pool,
    local: bool,
    until_signal: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("connections cannot be waited for")?;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            until_signal();
            // Sending fails only if the server has ended already.
            let _ = stop.send(());
        })
        .context("no thread can be started")?;
    LocalSet::new().block_on(&runtime, async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::task::spawn_local(accept(listener, Rc::new(RefCell::new(pool)), local));
        // An error means that the signal thread is gone, so no further request to end can arrive.
        let _ = stopped.await;
        Ok(())
    })
}

async fn accept(listener: tokio::net::TcpListener, pool: Rc<RefCell<Pool>>, local: bool) {
    // Open connections, the oldest first.
    let mut open: VecDeque<(Instant, AbortHandle)> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(LATER).await;
            continue;
        };
        open.retain(|(_, connection)| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some((since, oldest)) = open.pop_front()
        {
            tokio::time::sleep_until((since + MIN_INTERVAL).into()).await;
            oldest.abort();
        }
        let pool = Rc::clone(&pool);
        let connection = tokio::task::spawn_local(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &pool, local);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(HEAD_BYTES)
                .max_headers(HEADERS)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // A client that is gone or too slow is dropped.
            let _ = tokio::time::timeout(WHOLE, connection).await;
        });
        open.push_back((Instant::now(), connection.abort_handle()));
    }
}

type HttpResponse = Response<Full<Bytes>>;

fn answer(request: &Request<Incoming>, pool: &RefCell<Pool>, local: bool) -> HttpResponse {
    let headers = request.headers();
    if local && let Some(host) = headers.get(header::HOST) {
        let host = host.to_str().unwrap_or("");
        if !is_local(host) {
            return text_response(
                StatusCode::MISDIRECTED_REQUEST,
                "expected a host of this machine, such as localhost or 127.0.0.1, found another \
                 name; for other machines: pfp-top serve --listen ADDRESS --allow-remote\n",
            );
        }
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = text_response(
            StatusCode::METHOD_NOT_ALLOWED,
            "expected GET or HEAD; nothing can be changed\n",
        );
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    match request.uri().path() {
        "/metrics" => metrics(headers, pool),
        "/" => text_response(StatusCode::OK, "pfp-top: the figures are at /metrics\n"),
        _ => text_response(StatusCode::NOT_FOUND, "expected /metrics\n"),
    }
}

fn metrics(headers: &HeaderMap, pool: &RefCell<Pool>) -> HttpResponse {
    let negotiated = Negotiated::of(
        joined(headers, &header::ACCEPT).as_deref(),
        joined(headers, &header::ACCEPT_ENCODING).as_deref(),
    );
    let body = match pool.borrow_mut().body(negotiated) {
        Ok(body) => body,
        Err(error) => {
            return text_response(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}\n"));
        }
    };
    let mut answer = response(StatusCode::OK, body, negotiated.form.content_type());
    let headers = answer.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if negotiated.gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer
}

/// A header, joined if it comes in several lines.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines: Vec<_> =
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

fn text_response(status: StatusCode, text: &str) -> HttpResponse {
    response(status, Bytes::copy_from_slice(text.as_bytes()), "text/plain; charset=utf-8")
}

fn response(status: StatusCode, body: Bytes, content_type: &'static str) -> HttpResponse {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

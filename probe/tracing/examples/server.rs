//! A web server whose requests are profile points: the CPU time of each handler, poll by poll, and
//! the wall time of each request including its waits.
//!
//! ```text
//! cargo run --release -p pfp-tracing --example server -- 1000000    # requests to itself
//! pfp-top --name server                                             # in another terminal
//! ```
//!
//! `server::render` waits 2 ms for a simulated database, and needs little CPU time: its line marked
//! `(wall)` shows 2 ms and more, its other line the CPU time. `server::hash` only computes.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Number of concurrent requests.
const AT_ONCE: usize = 4;

#[tracing::instrument]
async fn render() -> String {
    query().await;
    (0..200).map(|row| format!("<li>{row}</li>")).collect()
}

#[tracing::instrument]
async fn query() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

#[tracing::instrument]
async fn hash() -> String {
    let hash = (0..50_000u64).fold(7u64, |hash, n| black_box(hash.rotate_left(5) ^ n));
    format!("{hash:x}")
}

async fn ask(address: SocketAddr, path: &str, times: usize) -> std::io::Result<()> {
    for _ in 0..times {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_end(&mut Vec::new()).await?;
    }
    Ok(())
}

/// Serves requests to itself until `requests` have been answered.
pub(crate) async fn serve(requests: usize) -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let routes = Router::new().route("/", get(render)).route("/hash", get(hash));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let clients = ["/", "/hash", "/", "/hash"]
        .map(|path| tokio::spawn(ask(address, path, requests / AT_ONCE)));
    for client in clients {
        client.await??;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    pfp_tracing::Options::default().lifetimes().init()?;
    let requests = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    serve(requests).await?;
    for point in pfp::points() {
        if let Some(stats) = point.stats() {
            println!("{:<40} {:>8} {:>10.1?}", point.name(), stats.count, stats.mean());
        }
    }
    Ok(())
}

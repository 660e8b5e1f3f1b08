//! A server and clients that speak HTTP/2 on several threads.

use bytes::Bytes;
use h2::{client, server};
use http::{Request, Response};
use tokio::io::DuplexStream;
use tracing::Instrument;

const CLIENTS: usize = 8;
/// Number of concurrent requests of a client, and number of requests in each sequence.
const AT_ONCE: usize = 4;
const REQUESTS: usize = 50;

#[tracing::instrument(skip_all)]
async fn answer(request: Request<h2::RecvStream>, mut respond: server::SendResponse<Bytes>) {
    let mut body = request.into_body();
    while let Some(part) = body.data().await {
        let part = part.expect("the client goes on");
        body.flow_control().release_capacity(part.len()).expect("it was taken");
    }
    let mut stream = respond.send_response(Response::new(()), false).expect("it is awaited");
    stream.send_data(Bytes::from_static(b"done"), true).expect("it is awaited");
}

async fn serve(stream: DuplexStream) {
    let mut connection = server::handshake(stream).await.expect("they speak the same");
    while let Some(request) = connection.accept().await {
        let (request, respond) = request.expect("the client goes on");
        tokio::spawn(answer(request, respond).in_current_span());
    }
}

#[tracing::instrument(skip_all)]
async fn ask(client: client::SendRequest<Bytes>) {
    for _ in 0..REQUESTS {
        let mut client = client.clone().ready().await.expect("the server goes on");
        let request = Request::post("http://host/").body(()).expect("it is one");
        let (response, mut body) = client.send_request(request, false).expect("it goes on");
        body.send_data(Bytes::from(vec![7; 10_000]), true).expect("it goes on");
        let mut body = response.await.expect("it is answered").into_body();
        while let Some(part) = body.data().await {
            body.flow_control().release_capacity(part.expect("it goes on").len()).expect("it was");
        }
    }
}

#[tracing::instrument]
async fn connect(stream: DuplexStream) {
    let (client, connection) = client::handshake(stream).await.expect("they speak the same");
    let connection = tokio::spawn(connection);
    let asking = [(); AT_ONCE].map(|()| tokio::spawn(ask(client.clone()).in_current_span()));
    drop(client);
    for asks in asking {
        asks.await.expect("nobody panics");
    }
    let _ = connection.await;
}

/// Runs all traffic. Afterwards, no thread is inside a span.
pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..CLIENTS {
            let (here, there) = tokio::io::duplex(4096);
            tasks.push(tokio::spawn(serve(there)));
            tasks.push(tokio::spawn(connect(here)));
        }
        for task in tasks {
            task.await.expect("nobody panics");
        }
    });
    drop(runtime);
}

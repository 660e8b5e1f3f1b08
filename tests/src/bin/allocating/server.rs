//! A server of Tokio under load, whose tasks move between threads.

use std::future;
use std::io::{Read, Write};
use std::net::{self, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::yield_now;

use super::{Known, all, allocate, measure_once};

const WORKERS: usize = 4;
const CLIENTS: u32 = 8;
/// Each client sends at least this many requests.
const REQUESTS: u32 = 1000;
/// The clients go on until tasks have moved this often.
const MOVES: u64 = 1000;

/// How often a task has gone on in another thread than the one in which it let others run: that
/// thread has stolen it.
static MOVED: AtomicU64 = AtomicU64::new(0);

async fn let_others_run() {
    let before = thread::current().id();
    yield_now().await;
    MOVED.fetch_add(u64::from(thread::current().id() != before), Relaxed);
}

#[derive(Clone, Copy)]
struct Points {
    connection: &'static Known,
    request: &'static Known,
    part: &'static Known,
    parse: &'static Known,
}

impl Points {
    async fn part(self, number: u32) -> u32 {
        allocate(number as usize % 100);
        let_others_run().await;
        drop(self.parse.measure());
        allocate(3);
        number
    }

    /// Answers a request with the sum of what its parts return.
    async fn answer(self, number: u32) -> u32 {
        let kept = vec![1_u8; number as usize % 500 + 1];
        self.parse.by_hand(|| allocate(number as usize % 100));
        let_others_run().await;
        let parts: Vec<_> = (number..number + 4)
            .map(|number| tokio::spawn(self.part.polled(self.part(number))))
            .collect();
        // A part that is given up at any moment.
        let given_up = tokio::spawn(self.part.polled(async {
            allocate(5);
            future::pending::<()>().await;
        }));
        let mut sum = 0;
        for part in parts {
            sum += part.await.expect("it does not panic");
        }
        given_up.abort();
        allocate(kept.len());
        sum
    }

    async fn connection(self, mut stream: TcpStream) {
        while let Ok(number) = stream.read_u32().await {
            let answer = self.request.polled(self.answer(number)).await;
            stream.write_u32(answer).await.expect("the client waits for it");
        }
    }
}

fn client(address: SocketAddr) {
    let mut stream = net::TcpStream::connect(address).expect("the server listens");
    for number in 0.. {
        if number >= REQUESTS && MOVED.load(Relaxed) >= MOVES {
            return;
        }
        assert!(number < 1000 * REQUESTS, "too few tasks move to other threads");
        stream.write_all(&u32::to_be_bytes(number)).expect("the server reads it");
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).expect("the server answers");
        assert_eq!(u32::from_be_bytes(answer), 4 * number + 6);
    }
}

pub(super) fn serve() {
    let [connection, request, part, parse] = all(["connection", "request", "part", "parse"]);
    let points = Points { connection, request, part, parse };
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(WORKERS).enable_io();
    runtime.on_thread_start(move || measure_once(&[connection, request, part, parse]));
    runtime.build().expect("there are threads").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| thread::spawn(move || client(address))).collect();
        let mut connections = Vec::new();
        for _ in 0..CLIENTS {
            let (stream, _) = listener.accept().await.expect("a client connects");
            let task = points.connection.polled(points.connection(stream));
            connections.push(tokio::spawn(task));
        }
        for task in connections {
            task.await.expect("it does not panic");
        }
        for client in clients {
            client.join().expect("all answers were right");
        }
    });
}

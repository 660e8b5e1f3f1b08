//! Tracy's case. `src/peers/tracy.rs` describes the setup; the package's features select the mode.

use std::sync::OnceLock;

use tracy_client::Client;

/// Keeps the client running: the client stops when its last value is dropped.
static CLIENT: OnceLock<Client> = OnceLock::new();

fn start() {
    CLIENT.get_or_init(Client::start);
}

fn region() {
    let _span = tracy_client::span!("region");
    std::hint::black_box(());
}

fn main() {
    pfp_bench::serve_if_asked(&[pfp_bench::case!("region", 1, start, region())]);
}

//! Tracy's case. What is set up, and why, stands in `src/peers/tracy.rs`; which
//! mode it is, in the package's features.

use std::sync::OnceLock;

use tracy_client::Client;

/// The client runs for as long as one of its values lives.
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

//! HTTP/2 on several threads: every entry of a span in these crates is a measurement of its point.
//! A layer counts the entries independently.

mod counter;
mod traffic;

use tracing_subscriber::layer::SubscriberExt;

#[test]
fn every_entry_is_a_measurement() {
    let all = tracing_subscriber::registry().with(pfp_tracing::layer()).with(counter::Counter);
    tracing::subscriber::set_global_default(all).expect("it is the first");
    traffic::run();
    counter::judge(15, 50_000);
}

//! HTTP/2 traffic with the subscriber alone, without a layer beside it.

mod counter;
mod traffic;

#[test]
fn every_entry_is_a_measurement() {
    let points = pfp_tracing::Options::default().subscriber().expect("there is no filter");
    tracing::subscriber::set_global_default(counter::Around::new(points)).expect("it is the first");
    traffic::run();
    counter::judge(15, 50_000);
}

//! pfp without its feature `enabled`.

fn region() {
    pfp::scope!("region");
    std::hint::black_box(());
}

fn main() {
    pfp_bench::serve_if_asked(&[pfp_bench::case!("region", 1, region())]);
}

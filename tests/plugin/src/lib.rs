//! A plugin that measures with its own copy of pfp, as `tests/c/copy.c` does in C.

use std::hint::black_box;

/// What the host has measured inside the plugin's region.
type Inside = extern "C" fn(i32) -> i32;

/// Works in a region, and calls the host back from there.
#[unsafe(no_mangle)]
pub extern "C" fn work(inside: Option<Inside>, argument: i32) -> i32 {
    pfp::scope!("plugin in Rust");
    for turn in 0..20_000 {
        black_box(turn);
    }
    inside.map_or(argument, |inside| inside(argument)) + 1
}

/// Pauses all measuring, or resumes it.
#[unsafe(no_mangle)]
pub extern "C" fn pause_all(pause: i32) {
    pfp::set_enabled(pause == 0);
}

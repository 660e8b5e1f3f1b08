//! Checks measurements by other means: figures, clocks, threads, forks, signals, and the state that
//! a program leaves when it ends at any instruction.

pfp_tests::measures_from_the_start!();

mod allocs;
mod amounts;
mod async_fn;
mod clock_ladder;
mod clocks;
mod cold;
mod contexts;
mod exact_counts;
mod examples;
mod fences;
mod fork;
mod gpu;
mod groups;
mod hot_path;
mod instructions;
mod interrupted;
mod killed_probe;
mod laps;
mod lifecycle;
mod loss;
mod on_cpu;
mod seed_example;
mod signals;
mod slow;
mod soak;
mod storms;
mod threads;
mod timers;
mod trusted;

//! A program like `pfp-test-target`, whose allocator ends the process where pfp must not allocate.
//! Its scenarios show that pfp allocates nothing there.

mod confined;
mod heap;
mod hot;
mod signals;

use std::process::ExitCode;

use pfp_tests::strict::{Strict, forbid};

#[global_allocator]
static ALLOCATOR: Strict = Strict;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> u64 {
        let argument = arguments.get(at).and_then(|argument| argument.parse().ok());
        argument.unwrap_or_else(|| panic!("argument {at} must be a number"))
    };
    match arguments.first().map_or("", String::as_str) {
        "signals" => signals::run(number(1)),
        "claims" => signals::claims(number(1)),
        "hot" => hot::run(number(1)),
        "no-heap" => return heap::run(&arguments[1]),
        "confined" => confined::run(&arguments[1], &arguments[2], number(3)),
        // These two show how the other scenarios would end if pfp allocated or made a system call.
        "asks-for-memory" => forbid(|| drop(std::hint::black_box(Box::new(1)))),
        "asks-the-kernel" => hot::asks_the_kernel(),
        other => panic!("there is no scenario {other:?}"),
    }
    ExitCode::SUCCESS
}

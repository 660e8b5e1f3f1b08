//! Another library that is written in Rust and includes the standard library.

/// Uses threads, the heap and unwinding.
#[unsafe(no_mangle)]
pub extern "C" fn other() -> i32 {
    let sum = std::thread::spawn(|| vec![1, 2, 3].into_iter().sum::<i32>()).join();
    let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(1)));
    sum.unwrap_or(0) + i32::from(caught.is_err())
}

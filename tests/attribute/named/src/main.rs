//! Uses the macros on every kind of function, without a warning.
#![deny(warnings)]
#![deny(
    future_incompatible,
    let_underscore,
    nonstandard_style,
    rust_2018_idioms,
    unused,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    trivial_casts,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::undocumented_unsafe_blocks
)]
// Lints about the functions' own code do not concern the macros.
#![allow(clippy::unused_async, clippy::missing_const_for_fn)]

use std::error::Error;
use std::fmt::{Debug, Display};
use std::future::{Future, ready};
use std::pin::Pin;

#[rustfmt::skip]
#[pfp::function] fn one_line(a: i32, b: i32) -> i32 { a + b }

#[rustfmt::skip]
#[pfp::function] async fn one_line_async(a: i32, b: i32) -> i32 { a + b }

#[rustfmt::skip]
#[pfp::function(items = a)] fn one_line_with_amounts(a: i32) -> i32 { a }

#[pfp::function]
fn empty() {}

struct LaneCounters(u32);

#[pfp::all_functions]
impl LaneCounters {
    /// The value of a new counter.
    const START: u32 = 1;

    const fn new() -> Self {
        Self(Self::START)
    }

    fn next(&mut self) -> u32 {
        self.0 += 1;
        self.0
    }

    #[pfp::function("a name of its own", items = self.0)]
    fn named(&self) -> u32 {
        self.0
    }

    #[pfp::skip]
    #[must_use]
    fn skipped(self) -> u32 {
        self.0
    }

    async fn later<'a>(&'a self, other: &'a Self) -> &'a Self {
        if ready(true).await { self } else { other }
    }

    #[rustfmt::skip]
    fn sum<T>(&self, more: T) -> u32 where T: Copy + Into<u32> { self.0 + more.into() }
}

#[pfp::all_functions]
impl Display for LaneCounters {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.0)
    }
}

fn tallied() -> u32 {
    pfp::register_thread!();
    pfp::register_thread!("counters");
    let mut counters = LaneCounters::new();
    for _ in 0..2 {
        counters.next();
        pfp::finish_frame!();
    }
    drop(counters.later(&counters));
    let found = counters.named() + counters.sum(1_u8);
    found + u32::from(counters.to_string().is_empty()) + counters.skipped()
}

#[pfp::function("items after the point")]
fn with_items() -> u32 {
    const ONE: u32 = 1;
    fn two() -> u32 {
        2
    }
    ONE + two()
}

#[pfp::function]
fn with_inner_attributes(unused: u32) {
    #![allow(unused_variables)]
}

#[pfp::function]
unsafe fn unsafe_one(at: *const u32) -> u32 {
    // SAFETY: the caller guarantees that `at` is valid for reads.
    unsafe { *at }
}

#[pfp::function]
extern "C" fn as_c_calls_it(number: u32) -> u32 {
    number + 1
}

#[pfp::function]
fn generic<T, const N: usize>(value: &T, _array: [u8; N]) -> String
where
    T: ?Sized + Debug + Display,
{
    format!("{value} {value:?}")
}

#[pfp::function]
fn of_any(numbers: impl IntoIterator<Item = u32>) -> impl Iterator<Item = u32> {
    numbers.into_iter().map(|number| number + 1)
}

#[pfp::function]
fn with_a_pattern((a, b): (u32, u32), [c, ..]: [u32; 2], mut d: u32) -> u32 {
    d += a;
    d + b + c
}

#[pfp::function]
fn early(number: Result<u32, String>) -> Result<u32, Box<dyn Error>> {
    let number = number?;
    if number > 1 {
        return Ok(number);
    }
    Err("too small".into())
}

#[pfp::function]
async fn early_async(number: Result<u32, String>) -> Result<Box<dyn Display>, Box<dyn Error>> {
    let number = number?;
    if number == 0 {
        return Err("too small".into());
    }
    if number > 1 {
        return Ok(Box::new("many"));
    }
    Ok(Box::new(number))
}

#[pfp::function]
async fn of_an_unnamed_type() -> impl Display {
    ready(1).await
}

#[pfp::function(bytes = text.len())]
async fn borrowing<'a>(text: &'a str, _other: &str) -> &'a str {
    ready(text).await
}

#[pfp::function]
fn forever() -> ! {
    loop {
        std::thread::park();
    }
}

#[pfp::function]
fn ends() -> ! {
    std::process::exit(0)
}

#[pfp::function]
fn pinned(number: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
    let number = number + 1;
    Box::pin(async move { ready(number).await })
}

#[pfp::function]
fn of_either_kind(number: u32) -> Pin<Box<dyn Future<Output = u32>>> {
    match number {
        0 => Box::pin(async { 0 }),
        1 => {
            let number = number + 1;
            Box::pin(async move { number })
        }
        _ if number > 7 => Box::pin(async move { number }),
        _ => {
            if number == 5 {
                Box::pin(async { 5 })
            } else {
                Box::pin(async move { number })
            }
        }
    }
}

#[rustfmt::skip]
#[pfp::function] fn on_one_line(n: u32) -> impl Future<Output = u32> + Send { async move { n } }

#[pfp::function]
async fn forever_async() -> ! {
    loop {
        std::future::pending::<()>().await;
    }
}

#[pfp::function]
fn r#match() {}

struct Counter<T>(T);

impl<T: Clone + Into<u64> + Send + Sync> Counter<T> {
    #[pfp::function]
    fn by_reference(&self) -> &T {
        &self.0
    }

    #[pfp::function("by mutable reference", items = number.clone().into())]
    fn by_mutable_reference(&mut self, number: T) -> &mut Self {
        self.0 = number;
        self
    }

    #[pfp::function]
    fn by_value(self) -> T {
        self.0
    }

    #[pfp::function]
    fn by_pin(self: Pin<&mut Self>) -> T {
        self.0.clone()
    }

    #[pfp::function]
    async fn by_reference_async(&self) -> &T {
        ready(&self.0).await
    }

    #[pfp::function]
    fn by_reference_later(&self) -> impl Future<Output = u64> {
        let number = self.0.clone();
        async move { number.into() }
    }
}

trait Measured {
    #[pfp::function]
    fn provided(&self) -> u32 {
        self.required() + 1
    }

    fn required(&self) -> u32;
}

impl<T: Clone> Measured for Counter<T> {
    #[pfp::function]
    fn required(&self) -> u32 {
        #[pfp::function]
        fn nested(number: u32) -> u32 {
            pfp::scope!("in a nested one");
            number
        }
        let again = || nested(2);
        nested(1) + again()
    }
}

macro_rules! declare {
    ($name:ident, $body:block) => {
        #[pfp::function]
        fn $name() -> u32 $body

        paste!($name);
    };
}

macro_rules! paste {
    ($name:ident) => {
        const _: fn() -> u32 = $name;
    };
}

declare!(declared, {
    pfp::function_scope!();
    7
});

/// Declares variables with names that the macros also use; they must not clash.
#[pfp::function]
fn names_of_its_own() -> u32 {
    let __pfp_guard = 1;
    let pfp_lap_without_laps = 2;
    __pfp_guard + pfp_lap_without_laps
}

fn main() {
    let array = [0; 3];
    println!("{} {} {}", one_line(1, 2), one_line_with_amounts(1), with_items());
    println!("{} {} {}", generic("text", array), as_c_calls_it(1), names_of_its_own());
    println!("{} {:?}", of_any([1]).sum::<u32>(), early(Ok(3)).is_ok());
    println!("{} {}", with_a_pattern((1, 2), [3, 4], 5), declared());
    let number = 1;
    // SAFETY: the pointer comes from a live local variable.
    println!("{}", unsafe { unsafe_one(&raw const number) });
    println!("{}", tallied());
    let mut counter = Counter(1_u32);
    println!("{}", counter.by_reference());
    println!("{}", counter.by_mutable_reference(2).provided());
    println!("{}", Pin::new(&mut counter).by_pin());
    drop(counter.by_reference_async());
    drop(counter.by_reference_later());
    println!("{}", counter.by_value());
    drop((one_line_async(1, 2), early_async(Ok(1)), of_an_unnamed_type(), borrowing("a", "b")));
    drop((pinned(1), of_either_kind(1), on_one_line(1), forever_async()));
    empty();
    with_inner_attributes(1);
    r#match();
    pfp::laps!("first");
    pfp::lap!("second", bytes = 1);
    pfp::lap!("third");
    if std::env::args().count() > 7 {
        forever();
    }
    ends();
}

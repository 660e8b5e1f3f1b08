//! Uses of the macros that they refuse, one for each feature.
#![deny(warnings)]
#![allow(unused)]

use std::future::{Future, ready};
use std::pin::Pin;

#[cfg(feature = "a-const-fn")]
#[pfp::function]
const fn constant() {}

#[cfg(feature = "an-opaque-future")]
#[pfp::function]
fn opaque() -> impl Future<Output = u32> + Send {
    ready(1)
}

#[cfg(feature = "a-boxed-future")]
#[pfp::function]
fn boxed() -> Pin<Box<dyn Future<Output = u32> + Send>> {
    Box::pin(ready(1))
}

#[cfg(feature = "a-future-in-one-branch")]
#[pfp::function]
fn in_one_branch(number: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
    if number > 1 { Box::pin(async { 1 }) } else { Box::pin(ready(1)) }
}

fn laps() {
    pfp::laps!();
    #[cfg(feature = "a-lap-without-a-name")]
    pfp::lap!(bytes = 1);
}

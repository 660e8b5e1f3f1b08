//! The same API without measuring: everything compiles to nothing.

use std::borrow::Cow;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use crate::errors::alpha_of;
use crate::{AlphaError, Amount, InitError};

/// Points that are named by a number: `0..NUMERIC`.
pub const NUMERIC: u32 = 64;

/// A profile point that does not measure.
#[derive(Debug)]
pub struct Point(());

/// Measures nothing.
#[must_use = "a guard that is not bound to a name ends its region at once"]
#[derive(Debug)]
pub struct Guard(PhantomData<*const ()>);

#[expect(missing_docs, reason = "see the measuring version")]
impl Guard {
    #[inline(always)]
    pub fn lap(&mut self, _next: &'static Point) {}
    #[inline(always)]
    pub fn lap_with<A: Amount, const N: usize>(&mut self, _next: &'static Timed, _amounts: [A; N]) {
    }
    #[doc(hidden)]
    #[inline(always)]
    pub fn empty() -> Self {
        Self(PhantomData)
    }
}

// As the measuring guard has: binding it is no oddity, and it ends at the same
// place.
impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {}
}

/// A point with amounts that does not measure.
#[derive(Debug)]
pub struct Timed(());

/// Measures nothing.
#[must_use = "a guard that is not bound to a name ends its region at once"]
#[derive(Debug)]
pub struct TimedGuard(PhantomData<*const ()>);

impl TimedGuard {
    #[doc(hidden)]
    #[inline(always)]
    pub fn empty() -> Self {
        Self(PhantomData)
    }
}

impl Drop for TimedGuard {
    #[inline(always)]
    fn drop(&mut self) {}
}

#[expect(missing_docs, reason = "see the measuring version")]
impl Timed {
    #[must_use]
    pub const fn new(_name: &'static str, _amounts: &'static [&'static str]) -> Self {
        Self(())
    }
    #[must_use]
    pub const fn at(
        _name: &'static str,
        _file: &'static str,
        _line: u32,
        _amounts: &'static [&'static str],
    ) -> Self {
        Self(())
    }
    #[doc(hidden)]
    #[must_use]
    pub const fn in_function(
        _name: fn() -> &'static str,
        _amounts: &'static [&'static str],
    ) -> Self {
        Self(())
    }
    #[must_use]
    pub const fn starts_off(self) -> Self {
        self
    }
    #[inline(always)]
    pub fn measure<A: Amount, const N: usize>(&'static self, _amounts: [A; N]) -> TimedGuard {
        TimedGuard(PhantomData)
    }
    #[doc(hidden)]
    #[inline(always)]
    pub fn measure_in<A: Amount, const N: usize>(
        &'static self,
        _amounts: [A; N],
        _guard: &mut TimedGuard,
    ) {
    }
    pub fn measure_async<F: Future, A: Amount, const N: usize>(
        &'static self,
        _amounts: [A; N],
        future: F,
    ) -> F {
        future
    }
    #[inline(always)]
    pub fn begin(&'static self) {}
    #[inline(always)]
    pub fn end<A: Amount, const N: usize>(&'static self, _amounts: [A; N]) {}
    #[inline(always)]
    pub fn end_latched<A: Amount, const N: usize>(&'static self, _amounts: [A; N]) {}
    #[inline(always)]
    #[must_use]
    pub fn point(&'static self) -> &'static Point {
        &Point(())
    }
    #[inline(always)]
    #[must_use]
    pub fn amounts(&'static self) -> Vec<(&'static str, u128)> {
        Vec::new()
    }
}

/// Statistics that there are none of.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "see the measuring version")]
pub struct Stats {
    pub count: u64,
    pub exclusive: u64,
    pub inclusive: u64,
    pub off_cpu: u64,
    pub switches: u64,
    pub min: u64,
    pub max: u64,
    pub last: u64,
    pub average: f64,
    pub alpha: f64,
}

#[expect(missing_docs, reason = "see the measuring version")]
impl Stats {
    #[must_use]
    pub fn exclusive(&self) -> Duration {
        Duration::ZERO
    }
    #[must_use]
    pub fn inclusive(&self) -> Duration {
        Duration::ZERO
    }
    #[must_use]
    pub fn off_cpu(&self) -> Duration {
        Duration::ZERO
    }
    #[must_use]
    pub fn min(&self) -> Duration {
        Duration::ZERO
    }
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::ZERO
    }
    #[must_use]
    pub fn last(&self) -> Duration {
        Duration::ZERO
    }
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::ZERO
    }
    #[must_use]
    pub fn average(&self) -> Option<Duration> {
        None
    }
    #[must_use]
    pub fn std_dev(&self) -> Duration {
        Duration::ZERO
    }
    #[must_use]
    pub fn quantile(&self, _q: f64) -> Option<Duration> {
        None
    }
    #[must_use]
    pub fn mean_ticks(&self) -> f64 {
        0.0
    }
    #[must_use]
    pub fn variance(&self) -> f64 {
        0.0
    }
}

/// Writes nothing, which is an error: there are no figures.
pub fn snapshot_to(_path: impl AsRef<Path>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The same.
pub fn snapshot_over(_path: impl AsRef<Path>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Writes nothing, which is an error: there are no figures.
pub fn show(_out: &mut impl io::Write) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What measuring costs: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// 0.
    pub inside: u64,
    /// 0.
    pub pair: u64,
    /// 0.
    pub lap: u64,
}

/// An execution object.
#[derive(Clone, Debug, Default)]
pub struct ExecutionContext(());

/// A context that was entered.
#[must_use = "the context is left at once if this is not bound to a name"]
#[derive(Debug)]
pub struct Entered(PhantomData<*const ()>);

/// A future that is not measured.
pub type Measured<F> = F;

/// The same.
pub type TimedMeasured<F> = F;

#[expect(missing_docs, reason = "see the measuring version")]
impl Point {
    #[must_use]
    pub const fn new(_name: &'static str) -> Self {
        Self(())
    }
    #[must_use]
    pub const fn at(_name: &'static str, _file: &'static str, _line: u32) -> Self {
        Self(())
    }
    #[inline(always)]
    #[must_use]
    pub fn numbered(_id: u32) -> &'static Self {
        &Self(())
    }
    #[must_use]
    pub const fn starts_off(self) -> Self {
        self
    }
    #[doc(hidden)]
    #[must_use]
    pub const fn in_function(_name: fn() -> &'static str) -> Self {
        Self(())
    }
    #[inline(always)]
    pub fn measure(&'static self) -> Guard {
        Guard(PhantomData)
    }
    pub fn measure_async<F: Future>(&'static self, future: F) -> F {
        future
    }
    #[inline(always)]
    pub fn begin(&'static self) {}
    #[inline(always)]
    pub fn begin_once(&'static self) {}
    #[inline(always)]
    pub fn end(&'static self) {}
    #[inline(always)]
    pub fn end_latched(&'static self) {}
    #[must_use]
    pub const fn fenced(self) -> Self {
        self
    }
    #[inline(always)]
    pub fn set_fenced(&'static self, _fenced: bool) {}
    #[inline(always)]
    pub fn enable(&'static self) {}
    #[inline(always)]
    pub fn disable(&'static self) {}
    #[inline(always)]
    #[must_use]
    pub fn is_enabled(&'static self) -> bool {
        false
    }
    #[inline(always)]
    pub fn reset(&'static self) {}
    pub fn set_alpha(&'static self, alpha: f64) -> Result<(), AlphaError> {
        if alpha > 0.0 && alpha <= 1.0 { Ok(()) } else { Err(AlphaError { alpha }) }
    }
    pub fn set_average(&'static self, period: Duration, tau: Duration) -> Result<(), AlphaError> {
        self.set_alpha(alpha_of(period, tau))
    }
    #[inline(always)]
    pub fn clear_alpha(&'static self) {}
    #[inline(always)]
    #[must_use]
    pub fn alpha(&'static self) -> Option<f64> {
        None
    }
    #[must_use]
    pub fn name(&'static self) -> Cow<'static, str> {
        Cow::Borrowed("")
    }
    #[inline(always)]
    pub fn set_name(&'static self, _name: &str) {}
    #[must_use]
    pub const fn file(&'static self) -> &'static str {
        ""
    }
    #[must_use]
    pub const fn line(&'static self) -> u32 {
        0
    }
    #[inline(always)]
    #[must_use]
    pub fn stats(&'static self) -> Option<Stats> {
        None
    }
}

#[expect(missing_docs, reason = "see the measuring version")]
impl ExecutionContext {
    #[must_use]
    pub fn new() -> Self {
        Self(())
    }
    #[must_use]
    pub fn number(&self) -> u32 {
        1
    }
    pub fn enter(&self) -> Option<Entered> {
        Some(Entered(PhantomData))
    }
}

/// Does nothing, which is an error: there is nothing to measure with.
///
/// # Errors
///
/// Always [`InitError::CompiledOut`].
pub fn init() -> Result<(), InitError> {
    Err(InitError::CompiledOut)
}
/// Does nothing.
#[inline(always)]
pub fn set_program_name(_name: &str) {}
/// Does nothing.
#[inline(always)]
pub fn register_thread(_name: &str) {}
/// None.
pub fn points() -> impl Iterator<Item = &'static Point> {
    std::iter::empty()
}
/// Does nothing.
#[inline(always)]
pub fn set_enabled(_on: bool) {}
/// False.
#[inline(always)]
#[must_use]
pub fn is_enabled() -> bool {
    false
}
/// Does nothing.
#[doc(hidden)]
#[inline(always)]
pub fn __finish_frame() {}
/// A nominal rate.
#[must_use]
pub fn ticks_per_second() -> f64 {
    1e9
}
/// 0.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    0
}
/// None.
#[inline(always)]
#[must_use]
pub fn on_cpu_ticks() -> Option<u64> {
    None
}
/// Does nothing.
pub fn calibrate(_pairs: u32) -> Option<Overhead> {
    None
}
/// Does nothing.
#[inline(always)]
pub fn task_switch(_prev: &ExecutionContext, _next: &ExecutionContext) -> bool {
    true
}

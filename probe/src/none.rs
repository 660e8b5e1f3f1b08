//! The engine of a build without measuring: the functions that the public types call, with empty
//! bodies.

use std::marker::PhantomData;

use crate::Point;

/// Declares functions that do nothing. If a function returns a value, the value follows a `=`.
macro_rules! nothing {
    ($(fn $name:ident($($given:tt)*) $(-> $returned:ty = $value:expr)?;)*) => {
        $(#[inline(always)]
        pub(crate) const fn $name($($given)*) $(-> $returned)? {
            $($value)?
        })*
    };
}

/// A guard that measures nothing.
#[must_use = "a guard that is not bound to a name ends its region at once"]
#[derive(Debug)]
pub struct Guard(PhantomData<*const ()>);

impl Guard {
    nothing! {
        fn none() -> Self = Self(PhantomData);
        fn begin(_point: &'static Point) -> Self = Self::none();
        fn lap_to(&mut self, _next: &'static Point);
        fn lap_to_amounts(&mut self, _next: &'static MeteredPoint, _amounts: &[u64; 4]);
    }
}

// Guards that measure have a destructor, so this guard has one, too. Then the same programs
// compile: no lint reports that the guard is unused, and borrows last equally long.
impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {}
}

/// A point with amounts that does not measure.
#[derive(Debug)]
pub struct MeteredPoint {
    point: Point,
}

impl MeteredPoint {
    nothing! {
        fn of(point: Point, _names: &'static [&'static str]) -> Self = Self { point };
        fn switched_off(self) -> Self = self;
        fn begin_with(&'static self, _amounts: [u64; 4]) -> Guard = Guard::none();
        fn itself(&'static self) -> &'static Point = &self.point;
        fn sums(&'static self) -> Vec<(&'static str, u128)> = Vec::new();
    }
}

/// Used by [`crate::finish_frame!`].
#[doc(hidden)]
#[inline(always)]
pub fn __finish_frame() {}

nothing! {
    fn advice(_is_private: bool, _errno: i32) -> String = String::new();
}

pub(crate) mod state {
    #[derive(Debug)]
    pub(crate) struct State;

    type Text = &'static str;

    impl State {
        nothing! {
            fn literal(_name: Text, _file: Text, _line: u32) -> Self = Self;
            fn function(_name: fn() -> Text, _file: Text, _line: u32) -> Self = Self;
            fn starts_off(self) -> Self = self;
            fn fenced(self) -> Self = self;
            fn counting_allocs(self) -> Self = self;
            fn file(&self) -> Text = "";
            fn line(&self) -> u32 = 0;
        }
    }
}

pub(crate) mod point {
    use std::borrow::Cow;

    use crate::{Point, Stats};

    #[expect(dead_code, reason = "nothing is changed")]
    pub(crate) enum Change {
        Enable,
        Disable,
        Fence(bool),
        CountAllocs(bool),
        Reset,
        Alpha(Alpha),
        Limit(Option<Limit>),
    }

    pub(crate) struct Limit;

    impl Limit {
        nothing! {
            fn nearest(_ns: u64, _is_cpu: bool) -> Option<Self> = None;
        }
    }

    pub(crate) struct Alpha;

    impl Alpha {
        pub(crate) const OFF: Self = Self;

        /// `None` if the weight is invalid, which is an error in this build, too.
        pub(crate) fn new(alpha: f64) -> Option<Self> {
            (alpha > 0.0 && alpha <= 1.0).then_some(Self)
        }
    }

    impl Point {
        nothing! {
            fn change(&'static self, _change: Change);
            fn is_on(&'static self) -> bool = false;
            fn weight(&'static self) -> Option<f64> = None;
            fn known_name(&'static self) -> Cow<'static, str> = Cow::Borrowed("");
            fn rename(&'static self, _name: &str);
            fn figures(&'static self) -> Option<Stats> = None;
        }
    }
}

pub(crate) mod boxes {
    nothing! {
        fn keep_open(_why: &str);
    }
}

pub(crate) mod numeric {
    use crate::Point;

    static NO_SUCH_POINT: Point = Point::new("");

    nothing! {
        fn point_or_none(_id: u32) -> &'static Point = &NO_SUCH_POINT;
    }
}

pub(crate) mod by_hand {
    use crate::{MeteredPoint, Point};

    nothing! {
        fn begin(_point: &'static Point);
        fn begin_once(_point: &'static Point);
        fn end(_point: &'static Point);
        fn end_latched(_point: &'static Point);
        fn end_with(_timed: &'static MeteredPoint, _latch: bool, _amounts: &[u64; 4]);
    }
}

pub(crate) mod elsewhere {
    nothing! {
        fn record_of_a_device(_point: &crate::Point, _start: u64, _ticks: u64, _number: u32);
    }
}

pub(crate) mod future {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use crate::{MeteredPoint, Point};

    #[derive(Debug)]
    pub(crate) struct Polled;

    pub(crate) type MeteredPolled = Polled;

    impl Polled {
        nothing! {
            fn of(_point: &'static Point) -> Self = Self;
            fn with(_timed: &'static MeteredPoint, _amounts: [u64; 4]) -> Self = Self;
        }

        #[inline(always)]
        pub(crate) fn poll<F: Future>(
            &mut self,
            future: Pin<&mut F>,
            context: &mut Context<'_>,
        ) -> Poll<F::Output> {
            future.poll(context)
        }
    }
}

pub(crate) mod program {
    use std::io::{self, ErrorKind::Unsupported};
    use std::iter::{Empty, empty};
    use std::path::Path;

    use crate::{InitError, Point};

    nothing! {
        fn init() -> Result<(), InitError> = Err(InitError::CompiledOut);
        fn set_name(_name: &str);
        fn pause(_pause: bool);
        fn is_enabled() -> bool = false;
        fn ticks_per_second() -> f64 = 1e9;
        fn register_thread(_name: &str);
        fn calibrate(_pairs: u32) -> Option<crate::Overhead> = None;
        fn listed() -> Empty<&'static Point> = empty();
    }

    pub(crate) enum Existing {
        Keep,
        Replace,
    }

    pub(crate) fn write_snapshot(_path: &Path, _existing: Existing) -> io::Result<()> {
        Err(Unsupported.into())
    }

    pub(crate) fn show(_out: &mut impl io::Write) -> io::Result<()> {
        Err(Unsupported.into())
    }
}

pub(crate) mod context {
    #[derive(Clone, Debug)]
    pub(crate) struct Shared;

    pub(crate) type Handle = Shared;

    impl Shared {
        nothing! {
            fn new() -> Handle = Self;
            fn number(&self) -> u32 = 1;
        }
    }

    nothing! {
        fn enter(_to: &Handle) -> bool = true;
        fn leave(_from: &Handle) -> bool = true;
        fn switch_to(_prev: &Handle, _next: &Handle) -> bool = true;
    }
    nothing! {
        fn next_context() -> u32 = 1;
    }
}

pub(crate) mod reading {
    nothing! {
        fn stamp() -> u64 = 0;
        fn stamp_and_cpu() -> (u64, Option<u32>) = (0, None);
        fn thread_id() -> u32 = 0;
        fn on_cpu_ticks() -> Option<u64> = None;
        fn now() -> Option<u64> = None;
        fn wall_ns() -> u64 = 0;
        fn cpu_time() -> (u64, u64) = (0, 0);
        fn core_hz(_rate: f64) -> Option<f64> = None;
    }
}

//! The functions that the leading copy of pfp provides for the copies that follow. Each is declared
//! once.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicU64;

use pfp_shm_layout::amounts::{Amounts, MAX_AMOUNTS};
use pfp_shm_layout::control::{Alpha, Change, Limit};

use super::serve::{self, metered, text};
use super::{Declaration, RawText, Sink};
use crate::engine::context::{self as contexts, Handle};
use crate::engine::elsewhere::{self, Past};
use crate::engine::polls::{self, Polls};
use crate::engine::process::{entries, pausing, switches};
use crate::engine::thread::given;
use crate::engine::{boxes, by_hand, calibrate, measure, numeric, program, reading};
use crate::errno;
use crate::point::Point;
use crate::stats::FIGURES;

/// The version of the table, in each copy's note: "pfpcopy" and a number. Raise the number whenever
/// a function is removed or changed. Append new functions at the end.
pub(in crate::engine) const VERSION: u64 = u64::from_be_bytes(*b"pfpcopy\x03");

/// Declares the table of functions, their bodies in the leader, and the methods by which a follower
/// calls them. A name in `[]` is a point: the follower passes its own point, and the body gets the
/// leader's. If the leader has no such point, the function does nothing. A name in `{}` is a
/// context, and a name in `<>` a text.
macro_rules! table {
    ($(
        $(#[$about:meta])*
        fn $name:ident $([$point:ident])? $({$context:ident})? $(<$text:ident>)?
            ($($given:ident: $type:ty),*) $(-> $returned:ty)? = $work:expr;
    )*) => {
        /// The functions of the leading copy, which the other copies call.
        #[repr(C)]
        #[derive(Debug)]
        pub(crate) struct FunctionTable {
            /// Size of the table in bytes. A follower may know fewer functions than the leader has,
            /// not more.
            pub(in crate::engine) size: usize,
            /// Makes the leader's point for a follower's point. Returns null if memory runs out.
            pub(super) declare: unsafe extern "C" fn(&Declaration) -> *const c_void,
            pub(super) stamp: unsafe extern "C" fn() -> u64,
            $($name: unsafe extern "C" fn(
                $(pointer!($point),)? $(pointer!($context),)? $(text!($text),)? $($type),*
            ) $(-> $returned)?,)*
        }

        /// The functions of this copy.
        pub(in crate::engine) static TABLE: FunctionTable = FunctionTable {
            size: size_of::<FunctionTable>(),
            declare: serve::declare,
            stamp: serve::stamp,
            $($name: {
                unsafe extern "C" fn $name(
                    $($point: *const c_void,)? $($context: *const c_void,)? $($text: RawText,)?
                    $($given: $type),*
                ) $(-> $returned)? {
                    $(
                        // SAFETY: a follower's pointer is null, or was returned by `declare`.
                        let Some($point) = (unsafe { serve::point($point) }) else {
                            return Default::default();
                        };
                    )?
                    $(
                        // SAFETY: the pointer was returned by `new_context`, and the follower holds
                        // a handle during the call.
                        let $context = &*unsafe { serve::context($context) };
                    )?
                    $(
                        // SAFETY: the follower's text is valid during the call.
                        let $text = unsafe { $text.bytes() };
                    )?
                    $work
                }
                $name
            },)*
        };

        /// The declarations of all functions as text, which a test compares with the version.
        #[cfg(test)]
        const DECLARED: &str = concat!(
            $(stringify!($name[$($point)?]{$($context)?}<$($text)?>($($type),*) $($returned)?), ";",)*
        );

        impl FunctionTable {
            $(
                $(#[$about])*
                #[inline(always)]
                pub(in crate::engine) fn $name(
                    &'static self,
                    $($point: &'static Point,)?
                    $($context: &Handle,)?
                    $($text: &(impl AsRef<[u8]> + ?Sized),)?
                    $($given: $type),*
                ) $(-> $returned)? {
                    $(let $point = self.point($point);)?
                    // SAFETY: the point is null, or was returned by `declare`; the other arguments
                    // are valid during the call.
                    unsafe {
                        (self.$name)(
                            $($point,)? $($context.as_ptr().cast(),)? $(RawText::of($text),)?
                            $($given),*
                        )
                    }
                }
            )*
        }
    };
}

macro_rules! pointer {
    ($name:ident) => { *const c_void };
}

macro_rules! text {
    ($name:ident) => {
        RawText
    };
}

table! {
    /// Begins a region and returns its tag. The ticks are the cost of a follower's region in
    /// addition to a leader's: inside the region, and in total.
    fn begin_region[point](by_hand: bool, inside: u64, pair: u64, amounts: Option<&Amounts>) -> u64 =
        serve::begin(point, by_hand, [inside, pair], amounts);
    fn end(tag: u64) = measure::end(tag);
    /// Ends the region of a tag and begins a region of another point, at the same stamp.
    fn lap[next](tag: u64, inside: u64) -> u64 = serve::lap(tag, next, inside);

    fn begin_once[point]() = by_hand::begin_once(point);
    /// The stamp at which the innermost region of the point began; 0 if it is not known.
    fn start[point]() -> u64 = by_hand::start(point).unwrap_or(0);
    fn end_by_hand[point]() = by_hand::end(point);
    fn end_latched[point]() = by_hand::end_latched(point);
    fn end_with[point](latch: bool, amounts: &Amounts) =
        metered(point, |metered| by_hand::end_with(metered, latch, amounts));
    /// Returns the stamp at which the region ended; 0 if it is not known.
    fn end_returning_stamp[point]() -> u64 = by_hand::end_returning_stamp(point).unwrap_or(0);

    fn end_poll(tag: u64, polls: &mut Polls, last: bool) = polls::end_poll(tag, polls, last);
    fn record_polls[point](polls: &mut Polls) = polls.record(point, None);
    fn record_polls_with[point](polls: &mut Polls, amounts: &Amounts) =
        polls.record(point, Some(*amounts));
    fn record_of_a_device[point](start: u64, ticks: u64, number: u32) =
        elsewhere::record_of_a_device(point, start, ticks, number);
    fn record_with[point](start: u64, ticks: u64, number: u32, amounts: &Amounts) =
        metered(point, |metered| elsewhere::record_with(metered, (start, ticks, number), amounts));
    fn record_past[point](past: &Past, is_inside: bool) =
        elsewhere::record_past(point, past, is_inside);

    fn set_enabled[point](on: bool) =
        point.change(if on { Change::Enable } else { Change::Disable });
    fn reset[point]() = point.change(Change::Reset);
    fn set_fenced[point](fenced: bool) = point.change(Change::Fence(fenced));
    fn set_counting_allocs[point](counting: bool) = point.change(Change::CountAllocs(counting));
    /// Sets the weight of a new value in the average; 0 switches averaging off.
    fn set_alpha[point](alpha: f64) =
        point.change(Change::Alpha(Alpha::new(alpha).unwrap_or(Alpha::OFF)));
    fn is_on[point]() -> bool = point.is_on();
    fn weight[point]() -> f64 = point.weight().unwrap_or(0.0);
    /// The point's number; 0 while it has none.
    fn number[point]() -> u32 = point.number().unwrap_or(0);
    fn rename[point]<name>() = point.rename(text(name));
    fn write_name[point](to: &Sink) = serve::write_name(point, to);
    /// Fills in the figures of a point, and writes the buckets of its histogram, as words.
    fn read_stats[point](figures: &mut [u64; FIGURES], buckets: Option<&Sink>) -> bool =
        serve::read_stats(point, figures, buckets);
    /// Fills in the sums of amounts, each the lower half first.
    fn read_sums[point](sums: &mut [[u64; 2]; MAX_AMOUNTS]) = serve::read_sums(point, sums);

    fn new_context() -> *const c_void = Handle::new().into_raw().cast();
    fn keep_context{it}() = _ = it.clone().into_raw();
    /// Drops a handle. The caller must not use it again.
    fn drop_context{it}() = serve::drop_context(it);
    fn number_of_context{it}() -> u32 = it.number();
    fn is_real{it}() -> bool = it.is_real();
    fn is_current{it}() -> bool = it.is_current();
    fn renew{it}() -> bool = it.renew();
    fn enter{it}() -> bool = contexts::enter(it);
    fn leave{it}() -> bool = contexts::leave(it);
    /// Switches from one context to another. Null is the thread's own context. Returns a `Switched`
    /// as a number.
    fn switch(prev: *const c_void, next: *const c_void) -> u32 =
        // SAFETY: the pointers are null, or contexts to which the follower holds handles.
        unsafe { serve::switch(prev, next) };
    fn next_context() -> u32 = contexts::next_context();

    fn try_init() -> u64 = program::try_init();
    fn pause(pause: bool) = pausing::pause(pause);
    fn is_enabled() -> bool = pausing::is_enabled();
    fn set_program_name<name>() = program::set_name(text(name));
    fn register_thread<name>() = program::register_thread(text(name));
    fn name_thread<name>(tid: u32) = given::name_thread(tid, text(name));
    /// The calling thread's on-CPU ticks; 0 if they are not known.
    fn on_cpu_ticks() -> u64 = reading::on_cpu_ticks().unwrap_or(0);
    fn ticks_per_second() -> f64 = program::ticks_per_second();
    fn miss() = entries::miss_unknown();
    fn count_refusal() = contexts::count_refusal();
    fn count_mismatch() = contexts::count_mismatch();
    fn refuse_point() = numeric::refuse();
    /// Measures the cost of the leader's regions: inside a region, of a pair, and of a lap.
    fn calibrate(pairs: u32, costs: &mut [u64; 3]) -> bool = serve::calibrate(pairs, costs);
    /// Measures what a call that begins and ends a region of point 0 costs beyond a scope: inside
    /// the region, and in total.
    fn calibrate_call(
        call: unsafe extern "C" fn(*const c_void), with: *const c_void, again: bool,
        inside: &AtomicU64, pair: &AtomicU64
    ) -> bool =
        // SAFETY: the follower passes the function together with the argument that it expects.
        calibrate::calibrate_call(|| unsafe { call(with) }, again, [inside, pair]);
    /// Writes a snapshot to a file. Returns 0, or the system's error number.
    fn snapshot<path>(replaces: bool) -> i32 = serve::snapshot(path, replaces);
    fn show(to: &Sink) -> i32 = serve::show(to);
    /// The word of a new [`crate::c::Switch`]; null if there is none.
    fn new_switch() -> *const AtomicU64 =
        errno::preserve(switches::new_word).map_or(ptr::null(), ptr::from_ref);
    /// Sets the time in nanoseconds beyond which calls are kept; 0 for none.
    fn set_limit[point](ns: u64, is_cpu: bool) =
        point.change(Change::Limit(Limit::new(ns, is_cpu)));
    fn keep<why>() = boxes::keep_open(text(why));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies of one version must agree on all functions and on the types that they exchange. If
    /// this fails only because of a new function at the end, record the new numbers here.
    #[test]
    fn functions_that_change_have_another_version() {
        let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let declared = DECLARED.bytes().filter(|byte| !byte.is_ascii_whitespace());
        let declared = declared.fold(0xcbf2_9ce4_8422_2325, hash);
        let sizes = [
            size_of::<Declaration>(),
            size_of::<Past>(),
            size_of::<Polls>(),
            size_of::<Sink>(),
            crate::stats::FIGURES,
        ];
        let found = (VERSION as u8, format!("{declared:x}"), sizes);
        assert_eq!(
            found,
            (3, "479412a532b4104e".into(), [120, 32, 48, 16, 14]),
            "raise VERSION: {DECLARED}"
        );
    }
}

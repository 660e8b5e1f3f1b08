//! The timer, in the caller's memory.

use std::ffi::c_int;

use pfp_timing::CpuTimer;

use crate::status::Status;

/// See `pfp.h`. An all-zero `pfp_timer_t` is a timer that was not started.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_timer_start(timer: Option<&mut CpuTimer>) -> c_int {
    with(timer, CpuTimer::start)
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_timer_stop(timer: Option<&mut CpuTimer>) -> c_int {
    with(timer, CpuTimer::stop)
}

fn with(timer: Option<&mut CpuTimer>, act: impl FnOnce(&mut CpuTimer)) -> c_int {
    let Some(timer) = timer else { return Status::Null.code() };
    act(timer);
    Status::Ok.code()
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_timer_elapsed_ms(timer: Option<&CpuTimer>) -> f64 {
    timer.map_or(0.0, CpuTimer::elapsed_ms)
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_timer_on_cpu_ms(timer: Option<&CpuTimer>) -> f64 {
    timer.and_then(CpuTimer::on_cpu_ms).unwrap_or(-1.0)
}

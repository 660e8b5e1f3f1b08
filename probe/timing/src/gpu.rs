//! A timer of GPU work, based on the GPU's events.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr;

use super::CpuTimer;
use crate::driver::{self, Driver, Event};
use crate::{heap, named};
use pfp::Point;
use pfp::reading;
use pfp::reading::stamp;

/// Maximum number of measurements that wait for the device. A further one is not timed, and counts
/// as lost.
const PENDING: usize = 1024;

/// Reason why work on a device cannot be timed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoGpu {
    /// The driver library could not be loaded, with the loader's message. The message is empty if
    /// memory ran out.
    NoDriver(String),
    /// The library lacks this function of the driver.
    NotADriver(&'static str),
    /// The driver has no device.
    NoDevice,
    /// The driver answered with this error (`CUresult`).
    Refused(u32),
    /// Another thread is loading a driver, which takes long. Try again later.
    Busy,
}

impl fmt::Display for NoGpu {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver(why) if why.is_empty() => out.write_str("no GPU: out of memory"),
            Self::NoDriver(why) => write!(out, "no GPU: {why}"),
            Self::NotADriver(missing) => {
                write!(out, "no GPU: the driver's library has no {missing}")
            }
            Self::NoDevice => out.write_str("no GPU: the driver has no device"),
            Self::Busy => out.write_str("no GPU yet: another thread is loading the driver"),
            Self::Refused(code) => write!(out, "no GPU: the driver answered with error {code}"),
        }
    }
}

impl std::error::Error for NoGpu {}

/// A stream of the driver (`CUstream`). Null is the default stream.
pub type Stream = *mut c_void;

/// The driver of this machine's GPUs.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    driver: &'static Driver,
}

impl Gpu {
    /// Loads the driver, which is `libcuda.so.1` or the library that the environment variable
    /// `PFP_CUDA_LIBRARY` names.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no GPU.
    pub fn find() -> Result<Self, NoGpu> {
        reading::keeping_errno(driver::find).map(|driver| Self { driver })
    }

    /// Loads the driver from another library.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no GPU.
    pub fn with_library(path: impl AsRef<Path>) -> Result<Self, NoGpu> {
        reading::keeping_errno(|| driver::load(path.as_ref())).map(|driver| Self { driver })
    }

    /// Number of devices of the driver; at least 1.
    #[must_use]
    pub fn devices(self) -> u32 {
        self.driver.devices()
    }
}

/// Times the work of a GPU's stream between a start and a stop, by the device's own events. So it
/// does not matter that launches return at once.
///
/// Each pair of start and stop is a measurement of the point `gpu:NAME` (`gpu:copy:NAME` for
/// [copies](Self::copies)). Its time is the device's, and does not count as load of a CPU. The time
/// that the host spends between the two, which is the launch, is a measurement of the point
/// `launch:NAME`.
///
/// A start or a stop never waits for the device. Later calls collect the measurements that the
/// device has finished, so call [`collect`](Self::collect) from time to time, or
/// [`synchronize`](Self::synchronize) where waiting does no harm. A point that is switched off
/// records no events.
///
/// The device reports how long work took, but not when it began by the host's clock. The viewer's
/// timeline shows each measurement in a row of the device, as early as possible: not before its
/// start was called, and as long after the previous one as the device reports.
///
/// Events belong to the CUDA context that is current on the calling thread, which must be the same
/// at each call. The context of the CUDA runtime is current once the thread has used the runtime.
///
/// ```no_run
/// let gpu = match pfp_timing::Gpu::find() {
///     Ok(gpu) => gpu,
///     Err(none) => return println!("{none}"),
/// };
/// let mut timer = pfp_timing::GpuTimer::new(gpu, "solve");
/// timer.start();
/// // ... launch kernels on the default stream ...
/// timer.stop();
/// // ... other work ...
/// if let Some(ms) = timer.elapsed_ms() {
///     println!("{ms} ms on the device, launched in {} ms", timer.launch_ms());
/// }
/// ```
#[derive(Debug)]
pub struct GpuTimer {
    driver: &'static Driver,
    stream: Stream,
    /// `None` if memory ran out.
    name: Option<String>,
    device: Option<&'static Point>,
    launch: Option<&'static Point>,
    host: CpuTimer,
    /// Number of this timer, which its records contain in place of a context.
    number: u32,
    /// Events that are free for reuse.
    idle: Vec<Event>,
    open: Option<Open>,
    /// Stopped measurements, in the order of the stream.
    pending: VecDeque<Pending>,
    /// End event of the last collected measurement, and its time on the host's counter.
    previous: Option<(Event, u64)>,
    started: u64,
    /// Number and milliseconds of the last collected measurement.
    last: Option<(u64, f64)>,
    lost: u64,
    thread_bound: PhantomData<*const ()>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// Start event. `None` if the measurement is not timed.
    event: Option<Event>,
    /// Reading of the host's counter just before the start event was recorded.
    asked: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    number: u64,
    start: Event,
    end: Event,
    asked: u64,
}

impl GpuTimer {
    /// Creates a timer for the default stream. If memory runs out, it measures nothing.
    #[must_use]
    pub fn new(gpu: Gpu, name: &str) -> Self {
        Self {
            driver: gpu.driver,
            stream: ptr::null_mut(),
            name: heap::text(name).ok(),
            device: named::device_point("gpu:", name),
            launch: named::point("launch:", name),
            host: CpuTimer::new(),
            number: reading::next_number(),
            idle: Vec::new(),
            open: None,
            pending: VecDeque::new(),
            previous: None,
            started: 0,
            last: None,
            lost: 0,
            thread_bound: PhantomData,
        }
    }

    /// Makes the timer measure copies between the host's and the device's memory, as the points
    /// `gpu:copy:NAME` and `launch:copy:NAME`.
    #[must_use]
    pub fn copies(mut self) -> Self {
        let name = self.name.as_deref();
        self.device = name.and_then(|name| named::device_point("gpu:copy:", name));
        self.launch = name.and_then(|name| named::point("launch:copy:", name));
        self
    }

    /// Makes the timer measure a stream of the driver. The streams of the CUDA runtime are streams
    /// of the driver.
    ///
    /// # Safety
    ///
    /// `stream` belongs to the current context, and exists until the last call of `start` or
    /// `stop`.
    #[must_use]
    pub unsafe fn on_stream(mut self, stream: Stream) -> Self {
        self.stream = stream;
        self
    }

    /// Starts a measurement of the work that is put into the stream from here on. Discards a
    /// measurement that was started and not stopped.
    pub fn start(&mut self) {
        self.abandon();
        self.collect();
        self.started += 1;
        let asked = stamp();
        let event = self.device.filter(|point| point.is_enabled()).and_then(|_| self.record());
        self.open = Some(Open { event, asked });
        if let Some(launch) = self.launch {
            launch.begin();
        }
        self.host.start();
    }

    /// Stops the measurement. Does not wait for the device.
    pub fn stop(&mut self) {
        let Some(Open { event, asked }) = self.open.take() else { return };
        self.host.stop();
        if let Some(launch) = self.launch {
            launch.end();
        }
        if let Some(start) = event {
            let has_room = self.pending.try_reserve(1).is_ok();
            self.lost += u64::from(!has_room);
            match has_room.then(|| self.record()).flatten() {
                Some(end) => {
                    self.pending.push_back(Pending { number: self.started, start, end, asked });
                }
                None => self.reuse(start),
            }
        }
        self.collect();
    }

    /// Milliseconds that the device took for the last stopped measurement. `None` if the device has
    /// not finished it, or if it was not timed. Does not wait, and may be called repeatedly.
    pub fn elapsed_ms(&mut self) -> Option<f64> {
        self.collect();
        let (number, ms) = self.last?;
        (number == self.started && self.open.is_none()).then_some(ms)
    }

    /// Milliseconds of the host from the last start to its stop, which is the duration of the
    /// launch.
    #[must_use]
    pub fn launch_ms(&self) -> f64 {
        self.host.elapsed_ms()
    }

    /// Collects the finished measurements without waiting. Returns the number of unfinished ones.
    pub fn collect(&mut self) -> usize {
        self.take(|driver, event| driver.is_done(event))
    }

    /// Waits until the device has finished all stopped measurements, and collects them.
    pub fn synchronize(&mut self) {
        self.take(|driver, event| driver.wait(event).map(|()| true));
    }

    /// Number of measurements that were not timed on the device, because 1,024 were pending, the
    /// driver returned an error, or memory ran out.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Collects measurements while `is_done` returns true for their end event.
    fn take(&mut self, is_done: impl Fn(&Driver, Event) -> Result<bool, NoGpu>) -> usize {
        while let Some(&Pending { number, start, end, asked }) = self.pending.front() {
            let time = match is_done(self.driver, end) {
                Ok(false) => break,
                Ok(true) => self.driver.between(start, end),
                Err(refused) => Err(refused),
            };
            self.pending.pop_front();
            match time {
                Ok(ms) => {
                    self.last = Some((number, ms));
                    let took = in_ticks(ms);
                    let begun = begun(asked, self.after_previous(start), stamp(), took);
                    self.reuse(start);
                    if let Some((event, _)) = self.previous.replace((end, begun.wrapping_add(took)))
                    {
                        self.reuse(event);
                    }
                    if let Some(point) = self.device {
                        reading::record_of_a_device(point, begun, took, self.number);
                    }
                }
                Err(_) => {
                    self.lost += 1;
                    // The events may cause the error, so they are not reused.
                    self.driver.destroy(start);
                    self.driver.destroy(end);
                }
            }
        }
        self.pending.len()
    }

    /// Time of an event on the host's counter, based on the device's time since the end of the last
    /// collected measurement.
    fn after_previous(&self, event: Event) -> Option<u64> {
        let (end, at) = self.previous?;
        let ms = self.driver.between(end, event).ok()?;
        Some(at.wrapping_add(in_ticks(ms)))
    }

    /// Records an event in the stream.
    fn record(&mut self) -> Option<Event> {
        let recorded = reading::keeping_errno(|| {
            if self.pending.len() >= PENDING {
                return None;
            }
            let event = self.idle.pop().or_else(|| self.driver.create().ok())?;
            // SAFETY: an event of this driver; the stream is null, or exists by the promise of the
            // caller of `on_stream`.
            match unsafe { self.driver.record(event, self.stream) } {
                Ok(()) => Some(event),
                Err(_) => {
                    self.driver.destroy(event);
                    None
                }
            }
        });
        self.lost += u64::from(recorded.is_none());
        recorded
    }

    /// Keeps an event for a later measurement. Destroys it if memory runs out.
    fn reuse(&mut self, event: Event) {
        match self.idle.try_reserve(1) {
            Ok(()) => self.idle.extend([event]),
            Err(_) => self.driver.destroy(event),
        }
    }

    fn abandon(&mut self) {
        if let Some(Open { event, .. }) = self.open.take() {
            if let Some(event) = event {
                self.reuse(event);
            }
            if let Some(launch) = self.launch {
                launch.end();
            }
        }
    }
}

impl Drop for GpuTimer {
    /// Collects the finished measurements and discards the others, so that it never waits.
    fn drop(&mut self) {
        self.abandon();
        self.collect();
        let waiting = self.pending.drain(..).flat_map(|it| [it.start, it.end]);
        let previous = self.previous.take().map(|(event, _)| event);
        for event in self.idle.drain(..).chain(waiting).chain(previous) {
            self.driver.destroy(event);
        }
    }
}

fn in_ticks(ms: f64) -> u64 {
    (ms / 1e3 * pfp::ticks_per_second()) as u64
}

/// Estimates, on the host's counter, when the device began work that took `took` ticks: at
/// `after_previous`, or at `asked` if that is unknown. The estimate is limited to times that are
/// not before `asked` and let the work end by `found`.
fn begun(asked: u64, after_previous: Option<u64>, found: u64, took: u64) -> u64 {
    let latest = found.saturating_sub(took).max(asked);
    after_previous.unwrap_or(asked).clamp(asked, latest)
}

#[cfg(test)]
mod tests {
    use super::begun;

    #[test]
    fn device_time_is_placed_between_request_and_completion() {
        // Without a previous measurement, the work begins at the request.
        assert_eq!(begun(100, None, 500, 50), 100);
        // The work begins when the previous work of the stream has ended.
        assert_eq!(begun(100, Some(300), 500, 50), 300);
        // The previous end was estimated too early, so it is before the request. The work begins at
        // the request.
        assert_eq!(begun(100, Some(40), 500, 50), 100);
        // The previous end was estimated too late, or the clocks have drifted apart. The work
        // begins in time to end by `found`.
        assert_eq!(begun(100, Some(480), 500, 50), 450);
        // The device reports more time than has passed. The work begins at the request.
        assert_eq!(begun(100, Some(300), 500, 4_000), 100);
        assert_eq!(begun(100, None, 500, u64::MAX), 100);
    }
}

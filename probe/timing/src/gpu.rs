//! A timer of what a GPU does, by its own events.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr;

use super::CpuTimer;
use crate::driver::{self, Driver, Event};
use crate::named;
use pfp::Point;
use pfp::reading;
use pfp::reading::stamp;

/// Measurements that may wait for the device; one more is not timed, and counted.
const PENDING: usize = 1024;

/// Why nothing can be timed on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoGpu {
    /// There is no driver library, in the words of the loader.
    NoDriver(String),
    /// A library without this function of the driver's.
    NotADriver(&'static str),
    /// The driver has no device.
    NoDevice,
    /// The driver answered with this error (`CUresult`).
    Refused(u32),
    /// Another thread is loading a driver, which takes long: to be tried again.
    Busy,
}

impl fmt::Display for NoGpu {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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

/// A stream of the driver's (`CUstream`); null is the default one.
pub type Stream = *mut c_void;

/// The driver of the GPUs here.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    driver: &'static Driver,
}

impl Gpu {
    /// Loads the driver, `libcuda.so.1` or what `PFP_CUDA_LIBRARY` names in the
    /// environment.
    ///
    /// # Errors
    ///
    /// Why there is no GPU.
    pub fn find() -> Result<Self, NoGpu> {
        reading::keeping_errno(driver::find).map(|driver| Self { driver })
    }

    /// Loads the driver from another library.
    ///
    /// # Errors
    ///
    /// As [`Self::find`].
    pub fn with_library(path: impl AsRef<Path>) -> Result<Self, NoGpu> {
        reading::keeping_errno(|| driver::load(path.as_ref())).map(|driver| Self { driver })
    }

    /// Devices that the driver has; at least 1.
    #[must_use]
    pub fn devices(self) -> u32 {
        self.driver.devices()
    }
}

/// Times what a stream of a GPU does between a start and a stop, by the device's own
/// events, so that it does not matter that launches return at once.
///
/// Each pair is a measurement of the point `gpu:NAME` (`gpu:copy:NAME` for
/// [copies](Self::copies)), whose time is the device's and no load of a CPU; what the
/// host did in between, the launch itself, is one of the point `launch:NAME`. The host
/// is never made to wait: what the device has finished is collected at later calls, so
/// call [`collect`](Self::collect) now and then, or [`synchronize`](Self::synchronize)
/// where waiting does no harm. A point that is switched off records no events.
///
/// How long the device took is known; when it began, by the host's clock, is not, since
/// the device has its own. A viewer's timeline has it in a row of the device's, as early
/// as it can have been: not before it was asked for, and as long after the one before it
/// as the device says.
///
/// Events belong to the CUDA context that is current on the calling thread, which is to
/// be the same at each call; the runtime's is, once it has been used there.
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
    name: String,
    device: Option<&'static Point>,
    launch: Option<&'static Point>,
    host: CpuTimer,
    /// What its records have in the place of a context.
    number: u32,
    /// Events that nobody uses now.
    idle: Vec<Event>,
    open: Option<Open>,
    /// Those that were stopped, in the order of the stream.
    pending: VecDeque<Pending>,
    /// The end of the one that was taken last, and where the host's counter has it.
    previous: Option<(Event, u64)>,
    started: u64,
    /// Of which start the last time is, and that time.
    last: Option<(u64, f64)>,
    lost: u64,
    thread_bound: PhantomData<*const ()>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// None where this one is not timed.
    event: Option<Event>,
    /// The host's counter before that.
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
    /// A timer of kernels on the default stream.
    #[must_use]
    pub fn new(gpu: Gpu, name: &str) -> Self {
        Self {
            driver: gpu.driver,
            stream: ptr::null_mut(),
            name: name.to_owned(),
            device: named::device_point(&format!("gpu:{name}")),
            launch: named::point(&format!("launch:{name}")),
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

    /// The timer, of copies between the host's memory and the device's: points
    /// `gpu:copy:NAME` and `launch:copy:NAME`.
    #[must_use]
    pub fn copies(mut self) -> Self {
        self.device = named::device_point(&format!("gpu:copy:{}", self.name));
        self.launch = named::point(&format!("launch:copy:{}", self.name));
        self
    }

    /// The timer, on a stream of the driver's; the runtime's streams are those.
    ///
    /// # Safety
    ///
    /// The stream is one of the current context, and exists as long as the timer is
    /// started and stopped.
    #[must_use]
    pub unsafe fn on_stream(mut self, stream: Stream) -> Self {
        self.stream = stream;
        self
    }

    /// Starts a measurement: what is put into the stream from here on. One that was
    /// started and not stopped is dropped.
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

    /// Stops it: what was put into the stream up to here. Does not wait for the device.
    pub fn stop(&mut self) {
        let Some(Open { event, asked }) = self.open.take() else { return };
        self.host.stop();
        if let Some(launch) = self.launch {
            launch.end();
        }
        if let Some(start) = event {
            match self.record() {
                Some(end) => {
                    self.pending.push_back(Pending { number: self.started, start, end, asked });
                }
                None => self.idle.push(start),
            }
        }
        self.collect();
    }

    /// Milliseconds that the device took for the measurement that was stopped last; none
    /// while it is not done with that, and after it was not timed. Does not wait, and may
    /// be asked as often as one likes.
    pub fn elapsed_ms(&mut self) -> Option<f64> {
        self.collect();
        let (number, ms) = self.last?;
        (number == self.started && self.open.is_none()).then_some(ms)
    }

    /// Milliseconds that the host took from the last start to its stop: the launch.
    #[must_use]
    pub fn launch_ms(&self) -> f64 {
        self.host.elapsed_ms()
    }

    /// Takes what the device has done by now, without waiting; how many measurements it
    /// has not.
    pub fn collect(&mut self) -> usize {
        self.take(|driver, event| driver.is_done(event))
    }

    /// Waits until the device has done all that was stopped.
    pub fn synchronize(&mut self) {
        self.take(|driver, event| driver.wait(event).map(|()| true));
    }

    /// Measurements that were not timed on the device, because 1,024 were waiting
    /// or the driver refused.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes what is done, by what `is_done` says.
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
                    self.idle.push(start);
                    let previous = self.previous.replace((end, begun.wrapping_add(took)));
                    self.idle.extend(previous.map(|(event, _)| event));
                    if let Some(point) = self.device {
                        reading::record_of_a_device(point, begun, took, self.number);
                    }
                }
                Err(_) => {
                    self.lost += 1;
                    // Whatever is wrong with them is not for the next one.
                    self.driver.destroy(start);
                    self.driver.destroy(end);
                }
            }
        }
        self.pending.len()
    }

    /// Where the host's counter has an event, by what the device says of the time since
    /// the end of the one that was taken last.
    fn after_previous(&self, event: Event) -> Option<u64> {
        let (end, at) = self.previous?;
        let ms = self.driver.between(end, event).ok()?;
        Some(at.wrapping_add(in_ticks(ms)))
    }

    /// An event in the stream, here.
    fn record(&mut self) -> Option<Event> {
        let recorded = reading::keeping_errno(|| {
            if self.pending.len() >= PENDING {
                return None;
            }
            let event = self.idle.pop().or_else(|| self.driver.create().ok())?;
            // SAFETY: the stream is null, or as the caller of `on_stream` has promised.
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

    fn abandon(&mut self) {
        if let Some(Open { event, .. }) = self.open.take() {
            self.idle.extend(event);
            if let Some(launch) = self.launch {
                launch.end();
            }
        }
    }
}

impl Drop for GpuTimer {
    /// Collects what is done; what is not is given up, since nobody shall wait.
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

/// When the device began, on the host's counter: not before it was asked to, and so early
/// that it was done when it was found to be. In between it is where the one before leads
/// to; without one, as early as can be.
fn begun(asked: u64, after_previous: Option<u64>, found: u64, took: u64) -> u64 {
    let latest = found.saturating_sub(took).max(asked);
    after_previous.unwrap_or(asked).clamp(asked, latest)
}

#[cfg(test)]
mod tests {
    use super::begun;

    #[test]
    fn what_a_device_did_lies_between_asking_and_finding() {
        // Nothing before it: at once.
        assert_eq!(begun(100, None, 500, 50), 100);
        // Behind what the stream had to do before.
        assert_eq!(begun(100, Some(300), 500, 50), 300);
        // The one before was put too early, and the stream has waited for the host.
        assert_eq!(begun(100, Some(40), 500, 50), 100);
        // It was put too late, or the clocks have drifted apart.
        assert_eq!(begun(100, Some(480), 500, 50), 450);
        // A device that says more than there was.
        assert_eq!(begun(100, Some(300), 500, 4_000), 100);
        assert_eq!(begun(100, None, 500, u64::MAX), 100);
    }
}

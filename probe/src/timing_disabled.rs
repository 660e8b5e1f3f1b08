//! Timers and samples without measuring: what they would measure still runs.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::{Sampled, Settled};

/// A timer that measures nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTimer(());

#[expect(missing_docs, reason = "see the measuring version")]
impl CpuTimer {
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
    #[inline(always)]
    pub fn start(&mut self) {}
    #[inline(always)]
    pub fn stop(&mut self) {}
    #[inline(always)]
    #[must_use]
    pub fn is_running(&self) -> bool {
        false
    }
    #[inline(always)]
    #[must_use]
    pub fn elapsed_ms(&self) -> f64 {
        0.0
    }
    #[inline(always)]
    #[must_use]
    pub fn on_cpu_ms(&self) -> Option<f64> {
        None
    }
}

impl fmt::Display for Sampled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: not measured", self.name)
    }
}

/// Runs `work` as often as the measuring version does.
pub fn sample<R>(name: &str, warmups: u32, samples: u32, mut work: impl FnMut() -> R) -> Sampled {
    for _ in 0..u64::from(warmups) + u64::from(samples) {
        std::hint::black_box(work());
    }
    Sampled {
        name: name.to_owned(),
        warmups,
        samples: 0,
        mean: 0.0,
        deviation: 0.0,
        least: 0.0,
        greatest: 0.0,
        median: 0.0,
        low: 0.0,
        high: 0.0,
        settled: Settled::TooFew,
        core_hz: None,
        core_clock_changed: false,
        elapsed: 0.0,
    }
}

/// A stamp of no moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "see the measuring version")]
pub struct CycleStamp {
    pub ticks: u64,
    pub cpu: Option<u32>,
    pub thread: u32,
}

/// Zeros.
#[inline(always)]
#[must_use]
pub fn cycle_stamp() -> CycleStamp {
    CycleStamp { ticks: 0, cpu: None, thread: 0 }
}

/// Who would be waited for.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "see the measuring version")]
pub enum SyncScope<'a> {
    None,
    Internal(&'a ThreadGroup),
    External(&'a ProcessGroup),
    Global(&'a ThreadGroup, &'a ProcessGroup),
}

/// Nobody was waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "see the measuring version")]
pub struct Synced {
    pub all_came: Option<u64>,
    pub waited: u64,
    pub dead: u32,
    pub absent: u32,
    pub stranger: bool,
}

/// Waits for nobody: it is for measuring, and nothing else may depend on it.
#[inline(always)]
pub fn synchronize(_scope: SyncScope<'_>) -> Synced {
    Synced::default()
}

/// The work's result, and no count.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "see the measuring version")]
pub struct CycleCount<R> {
    pub result: R,
    pub start: CycleStamp,
    pub end: CycleStamp,
    pub on_cpu: u64,
    pub synced: Synced,
}

#[expect(missing_docs, reason = "see the measuring version")]
impl<R> CycleCount<R> {
    #[must_use]
    pub fn elapsed(&self) -> u64 {
        0
    }
    #[must_use]
    pub fn since_all_came(&self) -> u64 {
        0
    }
    #[must_use]
    pub fn stayed(&self) -> bool {
        false
    }
}

/// Does the work.
#[inline(always)]
pub fn cycle_count<R>(
    _point: &'static crate::Point,
    _scope: SyncScope<'_>,
    work: impl FnOnce() -> R,
) -> CycleCount<R> {
    let stamp = cycle_stamp();
    CycleCount { result: work(), start: stamp, end: stamp, on_cpu: 0, synced: Synced::default() }
}

/// A group that waits for nobody.
#[derive(Clone, Debug)]
pub struct ThreadGroup(());

#[expect(missing_docs, reason = "see the measuring version")]
impl ThreadGroup {
    #[must_use]
    pub fn named(_name: &str, _members: u32) -> Self {
        Self(())
    }
    #[must_use]
    pub fn with_patience(self, _patience: Duration) -> Self {
        self
    }
    pub fn join(&self) -> bool {
        true
    }
    pub fn leave(&self) {}
}

/// A group that waits for nobody.
#[derive(Debug)]
pub struct ProcessGroup(());

#[expect(missing_docs, reason = "see the measuring version")]
impl ProcessGroup {
    pub fn join(_name: &str, _members: u32) -> io::Result<Self> {
        Ok(Self(()))
    }
    #[must_use]
    pub fn with_patience(self, _patience: Duration) -> Self {
        self
    }
}

#[cfg(feature = "cuda")]
pub use gpu::{Gpu, GpuTimer, NoGpu, Stream};

#[cfg(feature = "cuda")]
mod gpu {
    use std::convert::Infallible;
    use std::fmt;
    use std::path::Path;

    /// Nothing is measured, so nothing is loaded.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    #[expect(missing_docs, reason = "see the measuring version")]
    pub enum NoGpu {
        NoDriver(String),
        NotADriver(&'static str),
        NoDevice,
        Refused(u32),
        Busy,
    }

    impl fmt::Display for NoGpu {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("no GPU: measuring was compiled out")
        }
    }

    impl std::error::Error for NoGpu {}

    /// A stream of the driver's.
    pub type Stream = *mut std::ffi::c_void;

    /// There is none.
    #[derive(Clone, Copy, Debug)]
    pub struct Gpu(Infallible);

    #[expect(missing_docs, reason = "see the measuring version")]
    impl Gpu {
        pub fn find() -> Result<Self, NoGpu> {
            Err(NoGpu::NoDevice)
        }
        pub fn with_library(_path: impl AsRef<Path>) -> Result<Self, NoGpu> {
            Err(NoGpu::NoDevice)
        }
        #[must_use]
        pub fn devices(self) -> u32 {
            match self.0 {}
        }
    }

    /// There is none.
    #[derive(Debug)]
    pub struct GpuTimer(Infallible);

    #[expect(missing_docs, reason = "see the measuring version")]
    impl GpuTimer {
        #[must_use]
        pub fn new(gpu: Gpu, _name: &str) -> Self {
            Self(gpu.0)
        }
        #[must_use]
        pub fn copies(self) -> Self {
            self
        }
        /// # Safety
        ///
        /// None.
        #[must_use]
        pub unsafe fn on_stream(self, _stream: Stream) -> Self {
            self
        }
        pub fn start(&mut self) {}
        pub fn stop(&mut self) {}
        pub fn elapsed_ms(&mut self) -> Option<f64> {
            match self.0 {}
        }
        #[must_use]
        pub fn launch_ms(&self) -> f64 {
            match self.0 {}
        }
        pub fn collect(&mut self) -> usize {
            match self.0 {}
        }
        pub fn synchronize(&mut self) {}
        #[must_use]
        pub fn lost(&self) -> u64 {
            match self.0 {}
        }
    }
}

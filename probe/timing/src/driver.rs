//! The CUDA driver, loaded as the program runs: libcuda.so.1, or what stands in for it.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, MutexGuard, TryLockError};

use pfp_shm_layout::environment;

use pfp::reading::brief_spin;

use crate::{NoGpu, Stream};

/// Names the driver's library, if it is not the system's.
const VARIABLE: &CStr = c"PFP_CUDA_LIBRARY";
const LIBRARY: &str = "libcuda.so.1";

/// `CUDA_SUCCESS` and `CUDA_ERROR_NOT_READY` of `cuda.h`.
const SUCCESS: c_uint = 0;
const NOT_READY: c_uint = 600;

/// An event of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event(*mut c_void);

type Result<T> = std::result::Result<T, NoGpu>;

/// The functions that are called, as `cuda.h` declares them.
#[derive(Debug)]
pub(crate) struct Driver {
    event_create: unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_uint,
    event_destroy: unsafe extern "C" fn(*mut c_void) -> c_uint,
    event_record: unsafe extern "C" fn(*mut c_void, Stream) -> c_uint,
    event_query: unsafe extern "C" fn(*mut c_void) -> c_uint,
    event_synchronize: unsafe extern "C" fn(*mut c_void) -> c_uint,
    event_elapsed_time: unsafe extern "C" fn(*mut f32, *mut c_void, *mut c_void) -> c_uint,
    devices: u32,
}

/// The libraries that were loaded, by name. They stay.
static LOADED: Mutex<Vec<(CString, &'static Driver)>> = Mutex::new(Vec::new());

/// What was loaded, when no other thread is about to load something. None after a
/// millisecond: a driver takes long, and a forked child may find that it is a thread which
/// only its parent has.
fn loaded() -> Option<MutexGuard<'static, Vec<(CString, &'static Driver)>>> {
    brief_spin().find_map(|()| match LOADED.try_lock() {
        Ok(loaded) => Some(loaded),
        // Nothing is done to it that could be left half done.
        Err(TryLockError::Poisoned(loaded)) => Some(loaded.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    })
}

/// The driver of the system, or the one that the environment names.
pub(crate) fn find() -> Result<&'static Driver> {
    let named = environment::variable(VARIABLE).filter(|name| !name.is_empty());
    load(Path::new(named.unwrap_or(LIBRARY.as_ref())))
}

/// The driver in a library.
pub(crate) fn load(library: &Path) -> Result<&'static Driver> {
    let none = |why: &str| NoGpu::NoDriver(why.to_owned());
    let name = CString::new(library.as_os_str().as_bytes()).map_err(|_| none("a NUL in a path"))?;
    let mut loaded = loaded().ok_or(NoGpu::Busy)?;
    if let Some((_, driver)) = loaded.iter().find(|(known, _)| *known == name) {
        return Ok(driver);
    }
    // SAFETY: a NUL-terminated name that outlives the call. What a driver does when it
    // is loaded is what the program asked for.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: null, or a text that stays until this thread's next call of its kind.
        let why = unsafe { libc::dlerror().as_ref() };
        let why = why.map(|text| {
            // SAFETY: as above; it ends with a zero byte.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        });
        return Err(NoGpu::NoDriver(why.unwrap_or_else(|| "not loaded".into())));
    }
    // SAFETY: the handle was opened just now, and is never closed.
    let driver: &Driver = Box::leak(Box::new(unsafe { Driver::of(handle) }?));
    loaded.push((name, driver));
    Ok(driver)
}

/// A function of a library as the type that `cuda.h` says it has.
///
/// # Safety
///
/// `handle` is an open library, and `F` the type of its function of that name.
unsafe fn function<F: Copy>(handle: *mut c_void, name: &'static CStr) -> Result<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: as the caller says.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() {
        return Err(NoGpu::NotADriver(name.to_str().unwrap_or_default()));
    }
    // SAFETY: a pointer to a function of that type, of the same size.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

fn checked(result: c_uint) -> Result<()> {
    if result == SUCCESS { Ok(()) } else { Err(NoGpu::Refused(result)) }
}

impl Driver {
    /// # Safety
    ///
    /// `handle` is an open library; if it has these functions, they are the driver's.
    unsafe fn of(handle: *mut c_void) -> Result<Self> {
        // SAFETY: as the caller says, and as `cuda.h` declares them.
        let (mut driver, init, count) = unsafe {
            let init: unsafe extern "C" fn(c_uint) -> c_uint = function(handle, c"cuInit")?;
            let count: unsafe extern "C" fn(*mut c_int) -> c_uint =
                function(handle, c"cuDeviceGetCount")?;
            let driver = Self {
                event_create: function(handle, c"cuEventCreate")?,
                event_destroy: function(handle, c"cuEventDestroy_v2")?,
                event_record: function(handle, c"cuEventRecord")?,
                event_query: function(handle, c"cuEventQuery")?,
                event_synchronize: function(handle, c"cuEventSynchronize")?,
                event_elapsed_time: function(handle, c"cuEventElapsedTime")?,
                devices: 0,
            };
            (driver, init, count)
        };
        let mut devices = 0;
        // SAFETY: the driver is to be called so before all else; the count is ours.
        checked(unsafe { init(0) })?;
        // SAFETY: as above.
        checked(unsafe { count(&raw mut devices) })?;
        driver.devices = u32::try_from(devices).unwrap_or(0);
        if driver.devices == 0 { Err(NoGpu::NoDevice) } else { Ok(driver) }
    }

    pub(crate) fn devices(&self) -> u32 {
        self.devices
    }

    /// An event, in the context that is current on this thread.
    pub(crate) fn create(&self) -> Result<Event> {
        let mut event = ptr::null_mut();
        // SAFETY: the place is ours; 0 are events with times.
        checked(unsafe { (self.event_create)(&raw mut event, 0) })?;
        Ok(Event(event))
    }

    pub(crate) fn destroy(&self, event: Event) {
        // SAFETY: an event of this driver's, which nobody uses any more. One that the
        // device has not come to is kept by the driver until it has.
        let _ = unsafe { (self.event_destroy)(event.0) };
    }

    /// # Safety
    ///
    /// The stream is one of this driver's that exists, or null.
    pub(crate) unsafe fn record(&self, event: Event, stream: Stream) -> Result<()> {
        // SAFETY: an event of this driver's; for the stream as the caller says.
        checked(unsafe { (self.event_record)(event.0, stream) })
    }

    /// Whether the device has come to it. Does not wait.
    pub(crate) fn is_done(&self, event: Event) -> Result<bool> {
        // SAFETY: an event of this driver's.
        match unsafe { (self.event_query)(event.0) } {
            NOT_READY => Ok(false),
            other => checked(other).map(|()| true),
        }
    }

    pub(crate) fn wait(&self, event: Event) -> Result<()> {
        // SAFETY: an event of this driver's.
        checked(unsafe { (self.event_synchronize)(event.0) })
    }

    /// Milliseconds of the device between two events that it has come to.
    pub(crate) fn between(&self, start: Event, end: Event) -> Result<f64> {
        let mut ms = 0f32;
        // SAFETY: events of this driver's, and a place of ours.
        checked(unsafe { (self.event_elapsed_time)(&raw mut ms, start.0, end.0) })?;
        Ok(f64::from(ms))
    }
}

//! The CUDA driver, loaded at run time: libcuda.so.1, or a library with the same functions.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, MutexGuard, TryLockError};

use pfp::own;
use pfp_shm_layout::environment;
use pfp_shm_layout::heap::{self, Grow, NoMemory};

use pfp::reading::brief_spin;

use crate::{NoGpu, Stream};

/// Environment variable that names another library for the driver.
const VARIABLE: &CStr = c"PFP_CUDA_LIBRARY";
const LIBRARY: &str = "libcuda.so.1";

/// `CUDA_SUCCESS` and `CUDA_ERROR_NOT_READY` of `cuda.h`.
const SUCCESS: c_uint = 0;
const NOT_READY: c_uint = 600;

/// An event of the driver (`CUevent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event(*mut c_void);

type Result<T> = std::result::Result<T, NoGpu>;

/// The driver's functions that we call, as `cuda.h` declares them.
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

/// The loaded libraries, by name. They are never unloaded.
static LOADED: Mutex<Vec<(CString, &'static Driver)>> = Mutex::new(Vec::new());

/// Locks the list of loaded libraries. `None` after a millisecond: another thread may be loading a
/// driver, which takes long, or the lock's holder may be a thread that does not exist in this
/// forked child.
fn loaded() -> Option<MutexGuard<'static, Vec<(CString, &'static Driver)>>> {
    brief_spin().find_map(|()| match LOADED.try_lock() {
        Ok(loaded) => Some(loaded),
        // A panic cannot leave the list half changed.
        Err(TryLockError::Poisoned(loaded)) => Some(loaded.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    })
}

/// The system's driver, or the library that the environment names.
pub(crate) fn find() -> Result<&'static Driver> {
    let named = environment::variable(VARIABLE).filter(|name| !name.is_empty());
    load(Path::new(named.unwrap_or(LIBRARY.as_ref())))
}

/// Loads a library, and returns its driver.
pub(crate) fn load(library: &Path) -> Result<&'static Driver> {
    let none = |why: &[u8]| NoGpu::NoDriver(heap::lossy(why).unwrap_or_default());
    let no_memory = || NoGpu::NoDriver(String::new());
    let name = heap::c_string(&[library.as_os_str().as_bytes()]).map_err(|error| {
        if NoMemory::is_in(&error) { no_memory() } else { none(b"a NUL in a path") }
    })?;
    let mut loaded = loaded().ok_or(NoGpu::Busy)?;
    if let Some((_, driver)) = loaded.iter().find(|(known, _)| *known == name) {
        return Ok(driver);
    }
    let room = own::room::<Driver>().ok_or_else(no_memory)?;
    loaded.try_reserve(1).map_err(|_| no_memory())?;
    // SAFETY: `name` is a NUL-terminated string that outlives the call. The program asked for the
    // driver, so its constructors may run.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: null, or a string that is valid until this thread's next call of `dlerror` or
        // `dlopen`.
        let why = unsafe { libc::dlerror().as_ref() };
        let why = why.map(|text| {
            // SAFETY: not null, so it is the loader's message, which ends with NUL.
            unsafe { CStr::from_ptr(text) }.to_bytes()
        });
        return Err(none(why.unwrap_or(b"not loaded")));
    }
    // SAFETY: the handle is open and never closed, and the library claims to be a CUDA driver.
    let driver: &Driver = Box::leak(Box::write(room, unsafe { Driver::of(handle) }?));
    loaded.try_push((name, driver)).map_err(|_| no_memory())?;
    Ok(driver)
}

/// Looks up a function of a library, of the type that `cuda.h` declares.
///
/// # Safety
///
/// `handle` is an open library, and `F` is the type of its function `name`.
unsafe fn function<F: Copy>(handle: *mut c_void, name: &'static CStr) -> Result<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the caller passes an open library; `name` ends with NUL.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() {
        return Err(NoGpu::NotADriver(name.to_str().unwrap_or_default()));
    }
    // SAFETY: by the caller's promise, `found` is a function of type `F`, which has a pointer's
    // size.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

fn checked(result: c_uint) -> Result<()> {
    if result == SUCCESS { Ok(()) } else { Err(NoGpu::Refused(result)) }
}

impl Driver {
    /// # Safety
    ///
    /// `handle` is an open library. Its functions that are looked up here have the types that
    /// `cuda.h` declares.
    unsafe fn of(handle: *mut c_void) -> Result<Self> {
        // SAFETY: the caller passes an open library whose functions have the types in `cuda.h`.
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
        // SAFETY: `cuInit` may be called at any time, and must come before other calls.
        checked(unsafe { init(0) })?;
        // SAFETY: the driver is initialized, and writes only to `devices`.
        checked(unsafe { count(&raw mut devices) })?;
        driver.devices = u32::try_from(devices).unwrap_or(0);
        if driver.devices == 0 { Err(NoGpu::NoDevice) } else { Ok(driver) }
    }

    pub(crate) fn devices(&self) -> u32 {
        self.devices
    }

    /// Creates an event in the context that is current on this thread.
    pub(crate) fn create(&self) -> Result<Event> {
        let mut event = ptr::null_mut();
        // SAFETY: the driver writes only to `event`; flags of 0 create an event with time stamps.
        checked(unsafe { (self.event_create)(&raw mut event, 0) })?;
        Ok(Event(event))
    }

    pub(crate) fn destroy(&self, event: Event) {
        // SAFETY: an event of this driver that is not used again. If the device has not reached it,
        // the driver frees it afterwards.
        let _ = unsafe { (self.event_destroy)(event.0) };
    }

    /// # Safety
    ///
    /// `stream` is null or an existing stream of this driver.
    pub(crate) unsafe fn record(&self, event: Event, stream: Stream) -> Result<()> {
        // SAFETY: an event of this driver; the caller passes null or an existing stream.
        checked(unsafe { (self.event_record)(event.0, stream) })
    }

    /// Whether the device has reached an event. Does not wait.
    pub(crate) fn is_done(&self, event: Event) -> Result<bool> {
        // SAFETY: an event of this driver, which is not destroyed yet.
        match unsafe { (self.event_query)(event.0) } {
            NOT_READY => Ok(false),
            other => checked(other).map(|()| true),
        }
    }

    pub(crate) fn wait(&self, event: Event) -> Result<()> {
        // SAFETY: an event of this driver, which is not destroyed yet.
        checked(unsafe { (self.event_synchronize)(event.0) })
    }

    /// Milliseconds between two events that the device has reached, by the device's clock.
    pub(crate) fn between(&self, start: Event, end: Event) -> Result<f64> {
        let mut ms = 0f32;
        // SAFETY: two events of this driver, which writes only to `ms`.
        checked(unsafe { (self.event_elapsed_time)(&raw mut ms, start.0, end.0) })?;
        Ok(f64::from(ms))
    }
}

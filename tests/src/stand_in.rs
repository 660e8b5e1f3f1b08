//! A library that replaces CUDA's driver; the test advances its device's clock.

use std::ffi::{CString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use pfp_timing::{Gpu, NoGpu};

use crate::c::{self, Compiler, Link};

/// The stand-in of one test: each copy of the library is a separate device.
#[derive(Debug)]
pub struct StandIn {
    path: PathBuf,
    handle: *mut c_void,
}

impl StandIn {
    /// Builds the library.
    ///
    /// # Panics
    ///
    /// Panics if there is no C compiler.
    #[must_use]
    pub fn new(test: &str) -> Self {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let built = BUILT.get_or_init(|| {
            let flags = ["-shared", "-fPIC"];
            c::compile(Compiler::C, "stand-in-cuda.so", &["cuda.c"], Link::Without, flags)
        });
        let path = built.with_file_name(format!("stand-in-{test}-{}.so", std::process::id()));
        std::fs::copy(built, &path).expect("there is room");
        Self::at(path)
    }

    /// Loads a library that was built before. The caller removes the file.
    ///
    /// # Panics
    ///
    /// Panics if the file is not that library.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        let name = CString::new(path.to_str().expect("it is plain text")).expect("no zero byte");
        // SAFETY: the library is our own, and runs no code when it is loaded.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{}", path.display());
        Self { path, handle: library }
    }

    fn function<F: Copy>(&self, name: &str) -> F {
        let name = CString::new(format!("stand_in_{name}")).expect("no zero byte");
        // SAFETY: the library is loaded and never closed, and the name is NUL-terminated.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!found.is_null() && size_of::<F>() == size_of_val(&found));
        // SAFETY: the callers state the types that `cuda.c` declares.
        unsafe { std::mem::transmute_copy(&found) }
    }

    /// Queues work of `ms` milliseconds in a stream.
    pub fn launch(&self, stream: *mut c_void, ms: f64) {
        self.function::<extern "C" fn(*mut c_void, f64)>("launch")(stream, ms);
    }

    /// Advances the device's clock.
    pub fn advance(&self, ms: f64) {
        self.function::<extern "C" fn(f64)>("advance")(ms);
    }

    /// Sets the property `what` of the device.
    pub fn tell(&self, what: &str, value: c_int) {
        self.function::<extern "C" fn(c_int)>(what)(value);
    }

    /// Reads the property `what` of the device.
    #[must_use]
    pub fn ask(&self, what: &str) -> c_int {
        self.function::<extern "C" fn() -> c_int>(what)()
    }

    /// The driver, as pfp would load it.
    ///
    /// # Panics
    ///
    /// Panics if it has no device.
    #[must_use]
    pub fn gpu(&self) -> Gpu {
        when_free(|| Gpu::with_library(&self.path)).expect("it has one device")
    }

    /// The path of the library.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Repeats a search for a GPU while another test loads a driver.
///
/// # Errors
///
/// Returns the error of a search that finds no GPU.
pub fn when_free(find: impl Fn() -> Result<Gpu, NoGpu>) -> Result<Gpu, NoGpu> {
    loop {
        match find() {
            Err(NoGpu::Busy) => thread::yield_now(),
            found => return found,
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

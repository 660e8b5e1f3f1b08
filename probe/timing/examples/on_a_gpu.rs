//! Compares [`GpuTimer`] with the clock of a real GPU.
//!
//! A kernel spins for a given time by the device's own clock, and writes how long it took. The time
//! that `GpuTimer` measures must agree. `.ci/gpu` copies this program to a machine that has CUDA's
//! driver and no Rust.
//!
//! The exit status is 0 if all figures agree, 1 if a figure does not, and 2 if there is no GPU.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::process::ExitCode;
use std::ptr;

use pfp_timing::{Gpu, GpuTimer};

/// Spins until `%globaltimer`, in nanoseconds, has advanced by the first argument; the second is
/// the address for the time that passed.
const KERNEL: &CStr = c"
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 length, .param .u64 result)
{
    .reg .u64 %start, %now, %length, %result;
    .reg .pred %p;
    ld.param.u64 %length, [length];
    ld.param.u64 %result, [result];
    mov.u64 %start, %globaltimer;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %p, %now, %length;
    @%p bra AGAIN;
    st.global.u64 [%result], %now;
    ret;
}
";

/// Number of bytes of a timed copy.
const COPY: usize = 256 << 20;

type Address = u64;
type Handle = *mut c_void;

/// Functions of the driver that `GpuTimer` does not use, as `cuda.h` declares them.
struct Cuda {
    handle: Handle,
}

impl Cuda {
    fn open() -> Option<Self> {
        // SAFETY: a NUL-terminated name; `Gpu::find` has loaded the same library before.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        (!handle.is_null()).then_some(Self { handle })
    }

    /// The function called `name`.
    ///
    /// # Safety
    ///
    /// `F` is a pointer to a function of the type that `cuda.h` gives `name`.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: `handle` is an open library and `name` ends with a zero byte.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!found.is_null(), "libcuda.so.1 has no {name:?}");
        // SAFETY: `F` is a function pointer, by the caller's promise, and so is `found`.
        unsafe { std::mem::transmute_copy(&found) }
    }

    /// Makes the first device's primary context current, and returns the spinning kernel.
    fn kernel(&self) -> Handle {
        // SAFETY: `cuda.h` declares these types; each pointer is to a local variable.
        unsafe {
            let retain: unsafe extern "C" fn(*mut Handle, c_int) -> c_uint =
                self.function(c"cuDevicePrimaryCtxRetain");
            let set: unsafe extern "C" fn(Handle) -> c_uint = self.function(c"cuCtxSetCurrent");
            let load: unsafe extern "C" fn(*mut Handle, *const c_char) -> c_uint =
                self.function(c"cuModuleLoadData");
            let get: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_uint =
                self.function(c"cuModuleGetFunction");
            let [mut context, mut module, mut kernel] = [ptr::null_mut(); 3];
            succeeded("cuDevicePrimaryCtxRetain", retain(&raw mut context, 0));
            succeeded("cuCtxSetCurrent", set(context));
            succeeded("cuModuleLoadData", load(&raw mut module, KERNEL.as_ptr()));
            succeeded("cuModuleGetFunction", get(&raw mut kernel, module, c"spin".as_ptr()));
            kernel
        }
    }

    fn device_memory(&self, bytes: usize) -> Address {
        let mut address = 0;
        // SAFETY: `cuda.h` declares this type; the driver writes the address to a local variable.
        unsafe {
            let allocate: unsafe extern "C" fn(*mut Address, usize) -> c_uint =
                self.function(c"cuMemAlloc_v2");
            succeeded("cuMemAlloc", allocate(&raw mut address, bytes));
        }
        address
    }

    /// Memory of the host from which the device can copy directly.
    fn host_memory(&self, bytes: usize) -> *const c_void {
        let mut memory = ptr::null_mut();
        // SAFETY: `cuda.h` declares this type; the driver writes the pointer to a local variable.
        unsafe {
            let allocate: unsafe extern "C" fn(*mut Handle, usize) -> c_uint =
                self.function(c"cuMemAllocHost_v2");
            succeeded("cuMemAllocHost", allocate(&raw mut memory, bytes));
        }
        memory
    }

    /// Launches the kernel on the default stream, for `length` nanoseconds.
    fn spin(&self, kernel: Handle, mut length: u64, mut result: Address) {
        type Launch = unsafe extern "C" fn(
            Handle,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            Handle,
            *mut Handle,
            *mut Handle,
        ) -> c_uint;
        let mut arguments = [(&raw mut length).cast(), (&raw mut result).cast()];
        // SAFETY: one thread runs a kernel with the two arguments that it declares; the driver
        // copies them before the call returns.
        unsafe {
            let launch: Launch = self.function(c"cuLaunchKernel");
            let [stream, extra] = [ptr::null_mut(); 2];
            let arguments = arguments.as_mut_ptr();
            let status = launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, extra.cast());
            succeeded("cuLaunchKernel", status);
        }
    }

    /// Starts a copy of [`COPY`] bytes to the device, on the default stream.
    fn copy(&self, to: Address, from: *const c_void) {
        // SAFETY: both ends are [`COPY`] bytes long and are never freed.
        unsafe {
            let copy: unsafe extern "C" fn(Address, *const c_void, usize, Handle) -> c_uint =
                self.function(c"cuMemcpyHtoDAsync_v2");
            succeeded("cuMemcpyHtoDAsync", copy(to, from, COPY, ptr::null_mut()));
        }
    }

    /// Waits for the device, and reads the word at an address.
    fn word(&self, from: Address) -> u64 {
        let mut word = 0u64;
        // SAFETY: copies 8 bytes of device memory into a local variable.
        unsafe {
            let copy: unsafe extern "C" fn(*mut c_void, Address, usize) -> c_uint =
                self.function(c"cuMemcpyDtoH_v2");
            succeeded("cuMemcpyDtoH", copy((&raw mut word).cast(), from, size_of::<u64>()));
        }
        word
    }
}

fn succeeded(function: &str, status: c_uint) {
    assert!(status == 0, "{function} failed with error {status} of the driver");
}

/// Prints a line of the report, and returns whether the figure agrees.
fn check(name: &str, agrees: bool, found: &str) -> bool {
    println!("{} {name}: {found}", if agrees { "ok  " } else { "BAD " });
    agrees
}

fn kernels(cuda: &Cuda, gpu: Gpu, kernel: Handle) -> bool {
    let result = cuda.device_memory(size_of::<u64>());
    let mut timer = GpuTimer::new(gpu, "spin");
    // The first launch also loads the kernel, which takes device time.
    cuda.spin(kernel, 1_000, result);
    cuda.word(result);
    let mut agree = true;
    for ms in [1u64, 10, 100] {
        timer.start();
        cuda.spin(kernel, ms * 1_000_000, result);
        timer.stop();
        timer.synchronize();
        let device = cuda.word(result) as f64 / 1e6;
        let found = timer.elapsed_ms().unwrap_or(f64::NAN);
        let launch = timer.launch_ms();
        // The events surround the kernel, which adds about 10 us. The clock's resolution is 1 us.
        let agrees = (-0.01..0.1 + device * 0.01).contains(&(found - device));
        let line = format!("GpuTimer {found:.3} ms, the kernel's own clock {device:.3} ms");
        agree &= check(&format!("a kernel of {ms} ms"), agrees, &line);
        if ms == 100 {
            let line = format!("{launch:.3} ms of the host");
            agree &= check("a launch does not wait", launch < found / 2.0, &line);
        }
    }
    agree
}

fn copies(cuda: &Cuda, gpu: Gpu) -> bool {
    let (to, from) = (cuda.device_memory(COPY), cuda.host_memory(COPY));
    let mut timer = GpuTimer::new(gpu, "upload").copies();
    timer.start();
    cuda.copy(to, from);
    timer.stop();
    timer.synchronize();
    let ms = timer.elapsed_ms().unwrap_or(f64::NAN);
    let rate = COPY as f64 / ms / 1e6;
    // The range covers an old PCIe link and a coherent link.
    let line = format!("{ms:.3} ms for 256 MiB, {rate:.1} GB/s");
    check("a copy", (1.0..1_000.0).contains(&rate), &line)
}

fn flood(cuda: &Cuda, gpu: Gpu, kernel: Handle) -> bool {
    const LAUNCHES: u64 = 1_500;
    let result = cuda.device_memory(size_of::<u64>());
    let mut timer = GpuTimer::new(gpu, "flood");
    for _ in 0..LAUNCHES {
        timer.start();
        cuda.spin(kernel, 100_000, result);
        timer.stop();
    }
    timer.synchronize();
    let left = timer.collect();
    let point = pfp::points().find(|point| point.name() == "gpu:flood");
    let counted = point.and_then(pfp::Point::stats).map_or(0, |stats| stats.count);
    let line = format!("{counted} timed, {} lost of {LAUNCHES}", timer.lost());
    check("many at once", left == 0 && counted + timer.lost() == LAUNCHES, &line)
}

fn main() -> ExitCode {
    let gpu = match Gpu::find() {
        Ok(gpu) => gpu,
        Err(none) => {
            println!("{none}");
            return ExitCode::from(2);
        }
    };
    let Some(cuda) = Cuda::open() else {
        println!("no GPU: libcuda.so.1 was loaded once, but could not be loaded again");
        return ExitCode::from(2);
    };
    let kernel = cuda.kernel();
    let checks = [kernels(&cuda, gpu, kernel), copies(&cuda, gpu), flood(&cuda, gpu, kernel)];
    if checks.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

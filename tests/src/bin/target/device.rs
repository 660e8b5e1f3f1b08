//! Kernels and copies on a simulated device.

use std::path::PathBuf;
use std::ptr;
use std::thread;
use std::time::Duration;

use pfp_tests::stand_in::StandIn;
use pfp_timing::GpuTimer;

/// Milliseconds of a kernel, and of a copy.
const MS: [f64; 2] = [3.0, 1.0];

/// Launches a kernel and a copy on two streams, again and again. The device finishes both before
/// the next ones are launched.
pub(crate) fn run(library: PathBuf) {
    let stand_in = StandIn::at(library);
    let stream = ptr::without_provenance_mut(0x10);
    let mut kernels = GpuTimer::new(stand_in.gpu(), "solve");
    // SAFETY: the stand-in never dereferences a stream.
    let mut copies = unsafe { GpuTimer::new(stand_in.gpu(), "solve").copies().on_stream(stream) };
    loop {
        kernels.start();
        stand_in.launch(ptr::null_mut(), MS[0]);
        kernels.stop();
        copies.start();
        stand_in.launch(stream, MS[1]);
        copies.stop();
        thread::sleep(Duration::from_millis(5));
        stand_in.advance(5.0);
        kernels.collect();
        copies.collect();
    }
}

//! The timer of a GPU, over a driver that stands in for CUDA's: its device has a clock
//! that the test moves.

use std::ffi::{CString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use pfp::{Gpu, GpuTimer, NoGpu};
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::own::{figures, watch};
use pfp_tests::screen::pfp_top;
use pfp_tests::{figure, skipped};

/// The stand-in, for one test alone: each copy of the library is a device of its own.
struct StandIn {
    path: PathBuf,
    handle: *mut c_void,
}

impl StandIn {
    fn new(test: &str) -> Self {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let built = BUILT.get_or_init(|| {
            let flags = ["-shared", "-fPIC"];
            c::compile(Compiler::C, "stand-in-cuda.so", &["cuda.c"], Link::Without, flags)
        });
        let path = built.with_file_name(format!("stand-in-{test}-{}.so", std::process::id()));
        std::fs::copy(built, &path).expect("there is room");
        let name = CString::new(path.to_str().expect("it is plain text")).expect("no zero byte");
        // SAFETY: a library of ours, which does nothing when it is loaded.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{}", path.display());
        Self { path, handle: library }
    }

    fn function<F: Copy>(&self, name: &str) -> F {
        let name = CString::new(format!("stand_in_{name}")).expect("no zero byte");
        // SAFETY: the library stays loaded.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!found.is_null() && size_of::<F>() == size_of_val(&found));
        // SAFETY: the callers name the types as `cuda.c` has them.
        unsafe { std::mem::transmute_copy(&found) }
    }

    fn launch(&self, stream: *mut c_void, ms: f64) {
        self.function::<extern "C" fn(*mut c_void, f64)>("launch")(stream, ms);
    }

    fn advance(&self, ms: f64) {
        self.function::<extern "C" fn(f64)>("advance")(ms);
    }

    fn tell(&self, what: &str, value: c_int) {
        self.function::<extern "C" fn(c_int)>(what)(value);
    }

    fn ask(&self, what: &str) -> c_int {
        self.function::<extern "C" fn() -> c_int>(what)()
    }

    fn gpu(&self) -> Gpu {
        Gpu::with_library(&self.path).expect("it has one device")
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / pfp::ticks_per_second()
}

#[test]
fn where_there_is_none_it_says_so() {
    let none = Gpu::with_library("/nowhere/libcuda.so.1").expect_err("there is no such file");
    assert!(matches!(none, NoGpu::NoDriver(_)), "{none:?}");
    assert!(none.to_string().starts_with("no GPU: "), "{none}");
    let other = Gpu::with_library("libm.so.6").expect_err("it is no driver");
    assert_eq!(other, NoGpu::NotADriver("cuInit"));
    let stand_in = StandIn::new("none");
    stand_in.tell("devices", 0);
    assert_eq!(Gpu::with_library(&stand_in.path).expect_err("no device"), NoGpu::NoDevice);
    match Gpu::find() {
        Ok(gpu) => figure(&format!("GPUs here: {}", gpu.devices())),
        Err(none) => skipped("events of a real device", &none.to_string()),
    }
}

#[test]
fn the_device_s_time_is_the_device_s_and_the_launch_the_host_s() {
    let stand_in = StandIn::new("times");
    let mut timer = GpuTimer::new(stand_in.gpu(), "solve");
    assert_eq!(timer.elapsed_ms(), None);
    let kernels = [12.5, 250.0, 0.5];
    for (done, ms) in kernels.into_iter().enumerate() {
        timer.start();
        stand_in.launch(ptr::null_mut(), ms);
        timer.stop();
        // The device has not even begun; the host went on.
        for _ in 0..3 {
            assert_eq!(timer.elapsed_ms(), None);
        }
        assert!(timer.launch_ms() < ms.max(100.0), "{}", timer.launch_ms());
        stand_in.advance(ms * 0.9);
        assert_eq!((timer.elapsed_ms(), timer.collect()), (None, 1));
        stand_in.advance(ms * 0.1 + 1e-6);
        for _ in 0..3 {
            let found = timer.elapsed_ms().expect("the device is done");
            assert!((found - ms).abs() < 1e-3, "{found} instead of {ms}");
        }
        assert_eq!(figures("gpu:solve").count, done as u64 + 1);
    }
    assert_eq!((stand_in.ask("syncs"), timer.lost()), (0, 0), "nobody waited");
    let (device, launch) = (figures("gpu:solve"), figures("launch:solve"));
    let all = kernels.iter().sum::<f64>() / 1e3;
    assert!((seconds(device.exclusive) / all - 1.0).abs() < 1e-3, "{device:?}");
    assert!((seconds(device.max) / 0.25 - 1.0).abs() < 1e-3, "{device:?}");
    assert_eq!((device.count, launch.count, device.inclusive), (3, 3, device.exclusive));
    figure(&format!("launches: {:.2e} s for {all} s", seconds(launch.exclusive)));
    assert!(seconds(launch.exclusive) < all / 4.0, "{launch:?}");
    drop(timer);
    assert_eq!(stand_in.ask("events"), 0, "every event was given back");
}

#[test]
fn copies_and_streams_are_told_apart() {
    let stand_in = StandIn::new("copies");
    let stream = ptr::without_provenance_mut(0x10);
    let mut kernels = GpuTimer::new(stand_in.gpu(), "field");
    // SAFETY: the stand-in never looks behind a stream.
    let mut copies = unsafe { GpuTimer::new(stand_in.gpu(), "field").copies().on_stream(stream) };
    kernels.start();
    copies.start();
    stand_in.launch(ptr::null_mut(), 40.0);
    stand_in.launch(stream, 10.0);
    copies.stop();
    kernels.stop();
    stand_in.advance(15.0);
    assert_eq!((copies.elapsed_ms(), kernels.elapsed_ms()), (Some(10.0), None));
    // Where waiting is asked for, the device is waited for.
    kernels.synchronize();
    assert_eq!((kernels.elapsed_ms(), stand_in.ask("syncs")), (Some(40.0), 1));
    let of = |name: &str| (seconds(figures(name).exclusive) * 1e3).round();
    assert_eq!((of("gpu:field"), of("gpu:copy:field")), (40.0, 10.0));
    assert_eq!(figures("launch:copy:field").count, 1);
}

#[test]
fn what_waits_is_bounded_and_what_is_lost_is_counted() {
    let stand_in = StandIn::new("bounded");
    let mut timer = GpuTimer::new(stand_in.gpu(), "flood");
    for _ in 0..1_500 {
        timer.start();
        stand_in.launch(ptr::null_mut(), 1.0);
        timer.stop();
    }
    assert_eq!((timer.collect(), timer.lost()), (1_024, 476));
    stand_in.advance(2_000.0);
    assert_eq!(timer.collect(), 0);
    assert_eq!(figures("gpu:flood").count, 1_024);
    // What the host took is known of all.
    assert_eq!(figures("launch:flood").count, 1_500);
    stand_in.tell("refuse", 1);
    timer.start();
    timer.stop();
    assert_eq!((timer.elapsed_ms(), timer.lost()), (None, 477));
    stand_in.tell("refuse", 0);
    // A start without a stop is dropped, and so is a stop without a start.
    timer.start();
    timer.start();
    timer.stop();
    timer.stop();
    assert_eq!(timer.elapsed_ms(), Some(0.0));
    assert_eq!(figures("gpu:flood").count, 1_025);
    // What the device has not done when the timer goes is given up.
    timer.start();
    stand_in.launch(ptr::null_mut(), 5.0);
    timer.stop();
    drop(timer);
    assert_eq!((stand_in.ask("events"), stand_in.ask("syncs")), (0, 0));
}

#[test]
fn a_point_that_is_off_records_no_events() {
    let stand_in = StandIn::new("off");
    let mut timer = GpuTimer::new(stand_in.gpu(), "steered");
    timer.start();
    timer.stop();
    assert_eq!(timer.elapsed_ms(), Some(0.0));
    let events = stand_in.ask("events");
    let watch = &mut watch();
    let id = pfp_tests::watch::id(watch.poll(), "gpu:steered");
    watch.change(id, pfp_shm_layout::control::Change::Disable);
    timer.start();
    stand_in.launch(ptr::null_mut(), 3.0);
    timer.stop();
    stand_in.advance(5.0);
    assert_eq!((timer.elapsed_ms(), timer.lost()), (None, 0));
    assert_eq!(stand_in.ask("events"), events);
    assert_eq!(figures("gpu:steered").count, 1);
    watch.change(id, pfp_shm_layout::control::Change::Enable);
    timer.start();
    timer.stop();
    assert!(timer.elapsed_ms().is_some());
}

#[test]
fn the_viewer_counts_it_as_no_cpu_s() {
    let stand_in = StandIn::new("viewer");
    let mut timer = GpuTimer::new(stand_in.gpu(), "render");
    timer.start();
    // More than this process has run so far: a load of far more than a CPU.
    stand_in.launch(ptr::null_mut(), 3_600_000.0);
    timer.stop();
    stand_in.advance(3_600_001.0);
    assert!(timer.elapsed_ms().is_some());
    let watch = &mut watch();
    let marked = watch.poll().points.iter().filter(|point| point.device).count();
    assert!(marked > 0 && watch.poll().points.iter().any(|point| !point.device));

    let pid = std::process::id().to_string();
    let top = |arguments: &[&str]| {
        let output = std::process::Command::new(pfp_top())
            .args(arguments)
            .args(["-p", &pid])
            .env_remove("PFP_TOP_CONFIG")
            .output()
            .expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let table = top(&["--once"]);
    let rows = |name: &str| {
        let row = table.lines().find(|row| row.contains(name));
        row.unwrap_or_else(|| panic!("no {name} in\n{table}")).to_owned()
    };
    assert!(rows("gpu:render").contains("(device)"), "{table}");
    rows("launch:render");
    let json: serde_json::Value = serde_json::from_str(&top(&["--once", "--json"])).expect("JSON");
    let points = json["points"].as_array().expect("a list");
    let of = |name: &str| points.iter().find(|point| point["name"] == name).expect("it is there");
    assert!(of("gpu:render")["load_cpus"].is_null(), "{json}");
    assert!(of("launch:render")["load_cpus"].is_number(), "{json}");

    // And in a file by the program itself, as in the viewer's.
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gpu-{pid}.json"));
    pfp::snapshot_over(&file).expect("there is room");
    let text = std::fs::read_to_string(&file).expect("it was written");
    let _ = std::fs::remove_file(&file);
    let saved: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let marked = |point: &serde_json::Value| point["device"] == true;
    let points = saved["points"].as_array().expect("a list");
    assert!(points.iter().all(|point| {
        let name = point["name"].as_str().expect("a text");
        marked(point) == name.starts_with("gpu:")
    }));
}

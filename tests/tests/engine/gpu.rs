//! The timer of a GPU, with a library that replaces CUDA's driver; the test advances its device's
//! clock.

use std::path::Path;
use std::ptr;

use pfp_tests::own::{figures, watch};
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::stand_in::{StandIn, when_free};
use pfp_tests::{figure, needs_a_screen, skipped};
use pfp_timing::{Gpu, GpuTimer, NoGpu};

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / pfp::ticks_per_second()
}

#[test]
fn a_missing_gpu_is_reported() {
    let refused = |path: &Path| when_free(|| Gpu::with_library(path)).expect_err("it is no GPU");
    let none = refused(Path::new("/nowhere/libcuda.so.1"));
    assert!(matches!(none, NoGpu::NoDriver(_)), "{none:?}");
    assert!(none.to_string().starts_with("no GPU: "), "{none}");
    assert_eq!(refused(Path::new("libm.so.6")), NoGpu::NotADriver("cuInit"));
    let stand_in = StandIn::new("none");
    stand_in.tell("devices", 0);
    assert_eq!(refused(stand_in.path()), NoGpu::NoDevice);
    match when_free(Gpu::find) {
        Ok(gpu) => figure(&format!("GPUs here: {}", gpu.devices())),
        Err(none) => skipped("events of a real device", &none.to_string()),
    }
}

#[test]
fn device_time_and_launch_time_are_separate() {
    let stand_in = StandIn::new("times");
    let mut timer = GpuTimer::new(stand_in.gpu(), "solve");
    assert_eq!(timer.elapsed_ms(), None);
    let kernels = [12.5, 250.0, 0.5];
    for (done, ms) in kernels.into_iter().enumerate() {
        timer.start();
        stand_in.launch(ptr::null_mut(), ms);
        timer.stop();
        // The stand-in's clock has not advanced since the launch, so the work is not finished.
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
fn copies_and_streams_are_distinguished() {
    let stand_in = StandIn::new("copies");
    let stream = ptr::without_provenance_mut(0x10);
    let mut kernels = GpuTimer::new(stand_in.gpu(), "field");
    // SAFETY: the stand-in never dereferences a stream.
    let mut copies = unsafe { GpuTimer::new(stand_in.gpu(), "field").copies().on_stream(stream) };
    kernels.start();
    copies.start();
    stand_in.launch(ptr::null_mut(), 40.0);
    stand_in.launch(stream, 10.0);
    copies.stop();
    kernels.stop();
    stand_in.advance(15.0);
    assert_eq!((copies.elapsed_ms(), kernels.elapsed_ms()), (Some(10.0), None));
    // `synchronize` waits for the device.
    kernels.synchronize();
    assert_eq!((kernels.elapsed_ms(), stand_in.ask("syncs")), (Some(40.0), 1));
    let of = |name: &str| (seconds(figures(name).exclusive) * 1e3).round();
    assert_eq!((of("gpu:field"), of("gpu:copy:field")), (40.0, 10.0));
    assert_eq!(figures("launch:copy:field").count, 1);
}

/// Records state by the host's clock when the device worked. The device measures the gap between
/// two measurements, and no record begins before the host requested the work or ends after the host
/// saw the work finished.
#[test]
fn records_fall_into_the_time_of_the_devices_work() {
    let stand_in = StandIn::new("records");
    let mut kernels = GpuTimer::new(stand_in.gpu(), "placed");
    let mut copies = GpuTimer::new(stand_in.gpu(), "placed").copies();
    let before = pfp::ticks();
    kernels.start();
    let asked = pfp::ticks();
    stand_in.launch(ptr::null_mut(), 10.0);
    kernels.stop();
    // Work of other code, which is not measured.
    stand_in.launch(ptr::null_mut(), 5.0);
    kernels.start();
    stand_in.launch(ptr::null_mut(), 20.0);
    kernels.stop();
    copies.start();
    stand_in.launch(ptr::null_mut(), 2.0);
    copies.stop();
    // Sleep at least as long as the device works: the stand-in's clock does not follow the host's.
    std::thread::sleep(std::time::Duration::from_millis(37));
    stand_in.advance(37.0);
    assert_eq!((kernels.collect(), copies.collect()), (0, 0));
    let after = pfp::ticks();
    // The device is idle by now, so the next record begins at the host's call.
    let asked_again = pfp::ticks();
    kernels.start();
    let begun_again = pfp::ticks();
    kernels.stop();
    assert_eq!(kernels.elapsed_ms(), Some(0.0));

    let watch = &mut watch();
    let of = |picture: &pfp_shm_layout::reader::Picture, name| pfp_tests::watch::id(picture, name);
    let picture = watch.poll();
    let [kernel, copy] = ["gpu:placed", "gpu:copy:placed"].map(|name| of(picture, name));
    let records = watch.reader().records();
    let found: Vec<_> = records.into_iter().map(|(_, record)| record).collect();
    let of = |point| found.iter().filter(move |record| record.point == point);
    let ms = |ticks: u64| ticks as f64 / pfp::ticks_per_second() * 1e3;
    let [first, second, third] = of(kernel).collect::<Vec<_>>()[..] else { panic!("{found:?}") };
    let near = |found: f64, expected: f64| {
        // The counter's rate becomes more exact over time.
        assert!((found - expected).abs() < 0.01, "{found} ms instead of {expected}");
    };
    assert!((before..=asked).contains(&first.start), "at once: {first:?}");
    near(ms(first.span), 10.0);
    near(ms(second.start - first.start - first.span), 5.0);
    near(ms(second.span), 20.0);
    assert!(second.start + second.span <= after, "it was found to be done: {second:?}");
    // The record of another timer only has to begin after that timer's start was requested.
    let copied = of(copy).next().expect("it was recorded");
    assert!((asked..=after).contains(&copied.start) && copied.start + copied.span <= after);
    assert!((asked_again..=begun_again).contains(&third.start), "{third:?}");
    // Each timer has its own context, which differs from the thread's.
    assert!(first.context == second.context && first.context != 0);
    assert!(copied.context != first.context && copied.context != 0);
    assert!([first, second, third, copied].iter().all(|it| it.span == it.exclusive));
    let launch = pfp_tests::watch::id(watch.poll(), "launch:placed");
    assert!(of(launch).all(|record| record.context == 0));
}

#[test]
fn pending_events_are_bounded_and_losses_counted() {
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
    // The host's time is known for all launches.
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
    // Work that the device has not finished when the timer is dropped is discarded.
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
fn the_viewer_shows_device_time_as_no_cpu_load() {
    let stand_in = StandIn::new("viewer");
    let mut timer = GpuTimer::new(stand_in.gpu(), "render");
    timer.start();
    // The device works for longer than this process has run, so its time would look like a load of
    // far more than one CPU.
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
        pfp_tests::well(&output);
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

    // The program's own snapshot file marks the device's points, too.
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

/// Watches a program that keeps launching kernels and copies: the table has rows for the host and
/// the device, and the timeline has a line for each timer's device.
#[test]
fn the_viewer_shows_host_and_device_rows() {
    needs_a_screen!();
    let stand_in = StandIn::new("screen");
    let place = Place::new();
    let library = stand_in.path().to_str().expect("it is plain text");
    let _target = place.start(env!("CARGO_BIN_EXE_pfp-test-target"), &["device", library]);
    let screen = place.screen(130, 30);
    screen.pfp_top("-i 0.1 --columns name,count,load,excl,avg");
    let row = |text: &str, name: &str| -> Option<Vec<String>> {
        let line = text.lines().skip(2).find(|line| line.contains(name))?;
        Some(line.split_whitespace().map(str::to_owned).collect())
    };
    let text = screen.wait_for("the host's rows and the device's", |text| {
        ["gpu:solve (device)", "gpu:copy:solve (device)", " launch:solve", " launch:copy:solve"]
            .iter()
            .all(|name| row(text, name).is_some_and(|row| row.len() > 4))
    });
    // The device needs 3 ms and 1 ms, and these rows show no CPU load.
    let [kernel, copy] = [" gpu:solve", " gpu:copy:solve"].map(|name| row(&text, name).unwrap());
    assert_eq!(kernel.last().map(String::as_str), Some("3.00ms"), "{text}");
    assert_eq!(copy.last().map(String::as_str), Some("1.00ms"), "{text}");
    let load = |row: &[String]| row[row.len() - 3].clone();
    assert_eq!([load(&kernel), load(&copy)], ["-", "-"], "{text}");
    assert!(load(&row(&text, "launch:solve").unwrap()) != "-", "{text}");

    screen.keys(&["4"]);
    let line = |text: &str, name: &str| {
        text.lines().position(|line| line.chars().skip(1).collect::<String>().starts_with(name))
    };
    screen.wait_for("a line of each timer's device", |text| {
        let first = line(text, "  device  ");
        first.is_some() && line(text, "  device 2  ") == first.map(|place| place + 1)
    });
    for (name, long) in [("gpu:solve", "3.00ms"), ("gpu:copy:solve", "1.00ms")] {
        screen.press(&["Down"], "what is known of it", |text| {
            text.contains(&format!(" {name}  {long} long on a device, for pfp-test-target, began "))
                && text.contains(" ago at the earliest")
                && text.contains("by its own clock")
        });
    }
    screen.quit();

    let output = place.pfp_top(&["export", "chrome", "--name", "pfp-test-target"]);
    let trace: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let events = trace["traceEvents"].as_array().expect("there are events");
    let of = |name: &'static str| events.iter().filter(move |event| event["name"] == name);
    assert!(of("gpu:solve").count() > 0 && of("launch:solve").count() > 0);
    assert!(of("gpu:solve").all(|event| event["cat"] == "device"));
    assert!(of("launch:solve").all(|event| event["cat"] != "device"));
}

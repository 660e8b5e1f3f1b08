//! Exports: golden files, independent readers, a running process, and files that cannot be written.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use pfp_model::Model;
use pfp_read::files::json::{self, Existing};
use pfp_read::snapshot::Snapshot;
use serde_json::Value;

use crate::tools;

/// Every format, with its golden file and the other options it was written with.
const GOLDEN: [(&str, &str, &[&str]); 11] = [
    ("csv", "export-v1.csv", &[]),
    ("csv", "export-v1-threads.csv", &["--per-thread", "--filter", "^(deflate|sort|sleep)$"]),
    ("openmetrics", "export-v1.openmetrics.txt", &["--filter", "^(deflate|sort|sleep)$"]),
    ("hgrm", "export-v1.hgrm", &["--filter", "^(deflate|sort|sleep)$"]),
    ("hlog", "export-v1.hlog", &[]),
    ("folded", "export-v1.folded", &[]),
    ("speedscope", "export-v1.speedscope.json", &[]),
    ("chrome", "export-v1.chrome.json", &[]),
    ("perfetto", "export-v1.perfetto", &[]),
    ("svg-trace", "export-v1-trace.svg", &[]),
    ("svg-histogram", "export-v1-histogram.svg", &["--filter", "^(deflate|sort|sleep)$"]),
];
const FORMATS: [&str; 10] = [
    "csv",
    "openmetrics",
    "hgrm",
    "hlog",
    "folded",
    "speedscope",
    "chrome",
    "perfetto",
    "svg-trace",
    "svg-histogram",
];
/// A name that would end every kind of string, cell, tag and element.
const HOSTILE: &str = "a\"'; <b>&amp;</title>,\\ =1%\t\n\u{1b}[2J{x=\"y\"} 7";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn asset(name: &str) -> PathBuf {
    root().join("assets").join(name)
}

fn sample() -> PathBuf {
    asset("snapshot-v1.json")
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pfp-top"));
    // Ignore the tester's own settings.
    command.env("PFP_TOP_CONFIG", "");
    command
}

fn export(format: &str, arguments: &[&str], file: &Path) -> Output {
    let mut command = command();
    command.args(["export", format]).args(arguments).arg(file);
    command.output().expect("the program starts")
}

fn exported(format: &str, arguments: &[&str], file: &Path) -> Vec<u8> {
    let output = export(format, arguments, file);
    assert_eq!(output.status.code(), Some(0), "{format}: {}", complaint(&output));
    output.stdout
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Reads an export with an independent reader of the format; `None` if the readers are not
/// installed.
fn read(format: &str, bytes: &[u8]) -> Option<Value> {
    let python = tools::readers("exports read by others")?;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("export");
    fs::write(&file, bytes).unwrap();
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers.py"));
    command.arg(format).arg(&file);
    if format == "speedscope" {
        command.arg(asset("speedscope-file-format-schema.json"));
    }
    let output = command.output().expect("the reader starts");
    assert!(output.status.success(), "{format} is refused: {}", complaint(&output));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn folded(snapshot: Snapshot) -> Model {
    let mut model = Model::default();
    model.fold(snapshot);
    model
}

fn golden_model() -> Model {
    folded(json::read(&sample()).unwrap())
}

/// The golden snapshot with hostile names, written to a file.
fn hostile(folder: &Path) -> PathBuf {
    let mut snapshot = json::read(&sample()).unwrap();
    snapshot.process.name = HOSTILE.into();
    for point in &mut snapshot.points {
        point.name = format!("{HOSTILE}{}", point.name);
        point.file = HOSTILE.into();
    }
    for lane in &mut snapshot.lanes {
        lane.name = format!("{HOSTILE}{}", lane.name);
    }
    let path = folder.join("hostile.json");
    json::write(&snapshot, &path, Existing::Keep).unwrap();
    path
}

/// Exports equal the golden files. After an intended change, run `pfp-top export FORMAT ...
/// assets/snapshot-v1.json -o assets/NAME --force`.
#[test]
fn exports_are_the_golden_files() {
    let mut differ = Vec::new();
    for (format, name, arguments) in GOLDEN {
        let mut now = exported(format, arguments, &sample());
        if let Ok(text) = str::from_utf8(&now) {
            // Replace the writer's version by the current one.
            let writer = concat!("pfp-top ", env!("CARGO_PKG_VERSION"));
            now = text.replace(writer, "pfp-top 0.1.0").into_bytes();
        }
        if now != fs::read(asset(name)).unwrap_or_default() {
            differ.push(format!("{format} {} -> {name}", arguments.join(" ")));
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
}

#[test]
fn a_spreadsheet_reads_the_figures_of_the_snapshot() {
    let Some(rows) = read("csv", &exported("csv", &[], &sample())) else { return };
    let (rows, model) = (rows.as_array().unwrap(), golden_model());
    assert_eq!(rows.len(), model.points().len());
    for (row, figures) in rows.iter().zip(model.points()) {
        let sums = figures.total();
        assert_eq!(row["point"], figures.name());
        assert_eq!(row["calls"], sums.count.to_string());
        assert_eq!(row["exclusive_ticks"], sums.exclusive.to_string());
        assert_eq!(row["off_cpu_ticks"], sums.off_cpu.to_string());
        let rate = model.snapshot().unwrap().clock.ticks_per_second;
        let ns: f64 = row["exclusive_ns"].as_str().unwrap().parse().unwrap();
        assert!((ns / 1e9 - sums.exclusive as f64 / rate).abs() < 1e-9, "{row}");
    }
}

#[test]
fn prometheus_reads_the_figures_of_the_snapshot() {
    let Some(read) = read("openmetrics", &exported("openmetrics", &[], &sample())) else { return };
    assert_eq!(read["types"]["pfp_calls"], "counter");
    assert_eq!(read["types"]["pfp_call_exclusive_seconds"], "histogram");
    assert_eq!(read["types"]["pfp_load"], "gauge");
    let model = golden_model();
    let rate = model.snapshot().unwrap().clock.ticks_per_second;
    let samples = read["samples"].as_array().unwrap();
    for figures in model.points() {
        let value = |name: &str| {
            let of = |s: &&Value| s["name"] == name && s["labels"]["point"] == figures.name();
            samples.iter().find(of).unwrap()["value"].as_f64().unwrap()
        };
        let sums = figures.total();
        assert_eq!(value("pfp_calls_total"), sums.count as f64);
        assert_eq!(value("pfp_exclusive_seconds_total"), sums.exclusive as f64 / rate);
        assert_eq!(value("pfp_off_cpu_seconds_total"), sums.off_cpu as f64 / rate);
        assert_eq!(value("pfp_call_exclusive_seconds_count"), sums.count as f64);
    }
}

/// HdrHistogram's own reader reads the interval log, and the test compares the distributions with
/// the counts of that reader.
#[test]
fn hdr_histogram_reads_what_was_measured() {
    let Some(read) = read("hlog", &exported("hlog", &[], &sample())) else { return };
    let model = golden_model();
    let snapshot = model.snapshot().unwrap();
    let ns = |ticks: u64| ticks as f64 * 1e9 / snapshot.clock.ticks_per_second;
    let close = |read: f64, exact: f64| (read - exact).abs() <= exact * 2e-3 + 1.0;
    let hgrm = String::from_utf8(exported("hgrm", &[], &sample())).unwrap();
    let mut distributions = HashMap::new();
    for part in hgrm.split("#[Point = ").skip(1) {
        let rows: Vec<Vec<f64>> = part
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(|line| line.split_whitespace().map(|figure| figure.parse().unwrap()).collect())
            .collect();
        distributions.insert(part.split(" of ").next().unwrap(), rows);
    }
    for figures in model.points().iter().filter(|figures| figures.is_used()) {
        let (name, sums) = (figures.name(), figures.total());
        let histogram = &read[&name];
        assert_eq!(histogram["calls"], sums.count, "{name}");
        let value = |key: &str| histogram[key].as_f64().unwrap();
        assert!(close(value("min_ns"), ns(sums.min)), "{name}");
        assert!(close(value("max_ns"), ns(sums.max)), "{name}");
        // With few calls, a percentile depends on its definition. With many, the two readers still
        // differ slightly, since the segment's buckets differ from the log's.
        for (place, wanted) in [0.5, 0.9, 0.99].into_iter().enumerate() {
            let [ticks] = figures.quantiles_at([wanted]).unwrap();
            let read = histogram["quantiles_ns"][place].as_f64().unwrap();
            let close = (read - ns(ticks)).abs() <= ns(ticks) * 0.04 + 1.0;
            assert!(close || sums.count < 5_000, "{name} {wanted}: {read} {}", ns(ticks));
        }
        assert!((value("end_ms") - snapshot.taken_unix_ns as f64 / 1e6).abs() < 100.0);

        // The cumulative count in each line equals the reader's count of values up to that
        // duration.
        let values = histogram["values_ns"].as_array().unwrap();
        for row in &distributions[name.as_str()] {
            let longest = (row[0] * 1000.0).round();
            let counted: u64 = values
                .iter()
                .filter(|value| value[0].as_f64().unwrap() <= longest)
                .map(|value| value[1].as_u64().unwrap())
                .sum();
            assert_eq!(counted, row[2] as u64, "{name} {row:?}");
        }
    }
}

/// A record of the snapshot as name, thread, begin, end and exclusive time.
type RecordRow = (String, String, u64, u64, u64);

fn records(snapshot: &Snapshot) -> Vec<RecordRow> {
    let ns = |ticks: u64| (ticks as f64 * 1e9 / snapshot.clock.ticks_per_second).round() as u64;
    let name = |id: u32| snapshot.points.iter().find(|p| p.id == id).unwrap().name.clone();
    let lane = |id: u32| snapshot.lanes.iter().find(|l| l.id == id).unwrap().name.clone();
    let row = |r: &pfp_read::snapshot::Record| {
        let (start, end) = (ns(r.start), ns(r.start + r.span));
        (name(r.point), lane(r.lane), start, end, ns(r.exclusive))
    };
    let mut records: Vec<_> = snapshot.records.iter().map(row).collect();
    records.sort();
    records
}

/// Asserts that two lists of records are equal, except for rounding to a nanosecond.
fn assert_alike(mut read: Vec<RecordRow>, records: &[RecordRow]) {
    read.sort();
    assert_eq!(read.len(), records.len());
    for (one, other) in read.iter().zip(records) {
        let alike = |a: u64, b: u64| a.abs_diff(b) <= 1;
        assert!(
            one.0 == other.0
                && one.1.split(", tasks ").next() == Some(&other.1)
                && alike(one.2, other.2)
                && alike(one.3, other.3)
                && alike(one.4, other.4),
            "{one:?} {other:?}"
        );
    }
}

#[test]
fn perfetto_reads_every_record_of_the_rings() {
    let Some(read) = read("perfetto", &exported("perfetto", &[], &sample())) else { return };
    let snapshot = json::read(&sample()).unwrap();
    assert_eq!(read["unknown_fields"], 0, "every field is one of the published messages");
    let slices = read["slices"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let number = |value: &Value| value.as_u64().unwrap();
    let rows = slices.iter().map(|s| {
        let exclusive = number(&s["annotations"]["exclusive_ns"]);
        (text(&s["name"]), text(&s["track"]), number(&s["at"]), number(&s["end"]), exclusive)
    });
    assert_alike(rows.collect(), &records(&snapshot));
    let off = slices.iter().filter(|slice| slice["category"][0] == "off-cpu").count();
    assert!(off > 0 && off < slices.len(), "{off}");
    let lost: u64 = read["instants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|instant| number(&instant["annotations"]["records"]))
        .sum();
    let written: u64 = snapshot.lanes.iter().map(|lane| lane.records_written).sum();
    assert_eq!(lost, written - snapshot.records.len() as u64);
}

#[test]
fn chrome_reads_every_record_of_the_rings() {
    let Some(read) = read("chrome", &exported("chrome", &[], &sample())) else { return };
    let snapshot = json::read(&sample()).unwrap();
    let events = read["traceEvents"].as_array().unwrap();
    let thread = |tid: &Value| {
        let named = |e: &&Value| e["name"] == "thread_name" && e["tid"] == *tid;
        events.iter().find(named).unwrap()["args"]["name"].as_str().unwrap().to_owned()
    };
    let ns = |us: &Value| (us.as_f64().unwrap() * 1000.0).round() as u64;
    let rows = events.iter().filter(|event| event["ph"] == "X").map(|e| {
        let (start, exclusive) = (ns(&e["ts"]), e["args"]["exclusive_ns"].as_u64().unwrap());
        let name = e["name"].as_str().unwrap().to_owned();
        (name, thread(&e["tid"]), start, start + ns(&e["dur"]), exclusive)
    });
    assert_alike(rows.collect(), &records(&snapshot));
}

#[test]
fn speedscope_reads_stacks_and_moments() {
    let Some(read) = read("speedscope", &exported("speedscope", &[], &sample())) else { return };
    let model = golden_model();
    let snapshot = model.snapshot().unwrap();
    let profiles = read["profiles"].as_array().unwrap();
    let begun: usize = profiles[1..]
        .iter()
        .map(|p| p["events"].as_array().unwrap().iter().filter(|e| e["type"] == "O").count())
        .sum();
    assert_eq!(begun, snapshot.records.len());
    // The last entry of a stack is the point that took the time.
    let mut sums: HashMap<&str, u64> = HashMap::new();
    let weights = profiles[0]["weights"].as_array().unwrap();
    for (path, weight) in profiles[0]["samples"].as_array().unwrap().iter().zip(weights) {
        let last = path.as_array().unwrap().last().unwrap().as_u64().unwrap();
        let name = read["shared"]["frames"][last as usize]["name"].as_str().unwrap();
        *sums.entry(name).or_default() += weight.as_u64().unwrap();
    }
    for figures in model.points().iter().filter(|figures| figures.total().exclusive > 0) {
        let exact = figures.total().exclusive as f64 * 1e9 / snapshot.clock.ticks_per_second;
        let sum = sums[figures.name().as_str()] as f64;
        assert!((sum - exact).abs() <= figures.lanes().count() as f64, "{sum} {exact}");
    }
}

#[test]
fn pictures_are_well_formed_and_tell_what_they_show() {
    let filter = ["--filter", "^deflate$"];
    let Some(histogram) = read("svg-histogram", &exported("svg-histogram", &filter, &sample()))
    else {
        return;
    };
    let texts = histogram["texts"].as_array().unwrap();
    assert!(texts.iter().any(|text| text == "deflate"));
    for percentile in ["p50 ", "p90 ", "p99 ", "p99.9 "] {
        assert!(texts.iter().any(|text| text.as_str().unwrap().starts_with(percentile)));
    }
    let calls = histogram["titles"].as_array().unwrap().iter().filter_map(|title| {
        title.as_str()?.split_once(": ")?.1.split_once(" calls, ")?.0.parse::<u64>().ok()
    });
    assert_eq!(calls.sum::<u64>(), 73_437);
    let trace = read("svg-trace", &exported("svg-trace", &[], &sample())).unwrap();
    assert_eq!(trace["tags"].get("script"), None);
    let texts = trace["texts"].as_array().unwrap();
    let model = golden_model();
    for lane in &model.snapshot().unwrap().lanes {
        assert!(texts.contains(&Value::from(lane.name.as_str())), "{} {texts:?}", lane.name);
    }
}

/// Every reader accepts every export of a program with hostile point names, and finds all of it.
#[test]
fn hostile_names_break_no_format() {
    let folder = tempfile::tempdir().unwrap();
    let file = hostile(folder.path());
    for format in FORMATS {
        let bytes = exported(format, &[], &file);
        // A binary format may contain any byte.
        assert!(format == "perfetto" || !bytes.contains(&0x1b), "{format}: an escape sequence");
        if !matches!(format, "hgrm" | "folded") && read(format, &bytes).is_none() {
            return;
        }
        let (now, before) = (bytes, exported(format, &[], &sample()));
        let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
        if !matches!(format, "perfetto" | "svg-trace") {
            assert_eq!(lines(&now), lines(&before), "{format}: as many lines as ever");
        }
    }
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    let run = |arguments: &[&str]| {
        command().args(["export", "csv"]).arg(sample()).args(arguments).output().unwrap()
    };
    let to = path.to_str().unwrap();
    fs::write(&path, "precious").unwrap();
    let refused = run(&["-o", to]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(complaint(&refused).contains("--force"), "{}", complaint(&refused));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    assert_eq!(run(&["-o", to, "--force"]).status.code(), Some(0));
    assert_eq!(fs::read(&path).unwrap(), exported("csv", &[], &sample()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    assert_eq!(exported("csv", &["-o", "-"], &sample()), fs::read(&path).unwrap());

    let nowhere = run(&["-o", "/proc/self/no-such-folder/a.csv"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(complaint(&nowhere).contains("was not written"), "{}", complaint(&nowhere));
}

#[test]
fn a_reader_that_leaves_is_fine_and_a_full_disk_is_not() {
    for format in FORMATS {
        let mut child = command()
            .args(["export", format])
            .arg(sample())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{format}: {}", complaint(&output));
        assert_eq!(complaint(&output), "", "{format}");

        let full = File::options().write(true).open("/dev/full").unwrap();
        let output =
            command().args(["export", format]).arg(sample()).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{format}");
        assert!(complaint(&output).contains("No space left"), "{format}: {}", complaint(&output));
    }
}

#[test]
fn failed_exports_have_their_exit_status() {
    let sample = sample();
    let status = |arguments: &[&str]| {
        let output = command().arg("export").args(arguments).output().unwrap();
        (output.status.code(), complaint(&output))
    };
    let file = sample.to_str().unwrap();
    assert_eq!(status(&["csv", "none.json"]).0, Some(3));
    assert_eq!(status(&["csv", "-p", "4294967295"]).0, Some(3));
    for (arguments, said) in [
        (&["xml", file][..], "possible values: csv, openmetrics"),
        (&["csv", file, "-p", "1"], "cannot be used with"),
        (&["csv", file, "--filter", "no such point"], "no point passes the filter"),
        (&["csv", file, "--filter", "/(/"], "open group"),
        (&["hlog", file, "--per-thread"], "csv and openmetrics"),
    ] {
        let (code, complaint) = status(arguments);
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(complaint.contains(said), "{complaint}");
    }
    let help = command().args(["export", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for format in FORMATS {
        let line = help.lines().find(|line| line.trim_start().starts_with(&format!("- {format}")));
        assert!(line.is_some_and(|line| line.len() > 40), "{format} in {help}");
    }
}

/// One or several processes of the demo, which end when this is dropped.
struct Demo {
    children: Vec<Child>,
    folder: tempfile::TempDir,
}

impl Demo {
    fn start() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let mut demo = Self { children: Vec::new(), folder };
        demo.start_another();
        demo
    }

    fn start_another(&mut self) {
        let mut command = command();
        command.arg("demo-workload").env("PFP_DIR", self.folder.path()).stdin(Stdio::piped());
        self.children.push(command.spawn().unwrap());
    }

    fn export(&self, arguments: &[&str]) -> Output {
        let mut command = command();
        command.env("PFP_DIR", self.folder.path()).arg("export").args(arguments);
        command.output().unwrap()
    }

    /// Exports again until the text contains what the test waits for.
    fn wait_for(&self, arguments: &[&str], reached: impl Fn(&str) -> bool) {
        // Only a hang reaches this.
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let text = String::from_utf8(self.export(arguments).stdout).unwrap();
            if reached(&text) {
                return;
            }
            assert!(Instant::now() < end, "waited in vain: {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

#[test]
fn a_process_that_runs_is_exported_in_every_format() {
    let mut demo = Demo::start();
    let pid = demo.children[0].id().to_string();
    // A worker has finished a round and left records.
    let path = ";chapter;compress;deflate ";
    demo.wait_for(&["folded", "-p", &pid], |text| text.contains(path));
    for format in FORMATS {
        let output = demo.export(&[format, "--name", "pfp-demo"]);
        assert_eq!(output.status.code(), Some(0), "{format}: {}", complaint(&output));
        assert!(!output.stdout.is_empty(), "{format}");
        if matches!(format, "hgrm" | "folded") {
            continue;
        }
        let Some(read) = read(format, &output.stdout) else { break };
        assert!(read.to_string().contains("deflate"), "{format}");
    }
    demo.start_another();
    let other = demo.children[1].id();
    demo.wait_for(&["csv", "--all", "--filter", "^deflate$"], |text| {
        let of = |pid: &str| text.contains(&format!("\npfp-demo,{pid},"));
        of(&pid) && of(&other.to_string())
    });
}

/// Runs the commands on the documentation page for exports as a reader would.
#[test]
fn the_examples_of_the_page_work() {
    let page = fs::read_to_string(root().join("docs/export.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::copy(sample(), folder.path().join("snapshot.json")).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_pfp-top")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let examples: Vec<&str> =
        blocks.flat_map(str::lines).filter(|line| line.starts_with("pfp-top export ")).collect();
    for format in FORMATS {
        assert!(
            examples.iter().any(|line| line.contains(&format!("export {format} "))),
            "{format}"
        );
    }
    for example in examples {
        let output = Command::new("sh")
            .args(["-c", example])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("PFP_TOP_CONFIG", "")
            .output()
            .unwrap();
        assert!(output.status.success(), "{example}: {}", complaint(&output));
    }
}

//! Chrome's trace event format, in JSON: the records of the rings, for `chrome://tracing`,
//! Perfetto's viewer and others.
//!
//! A region is a complete event (`X`) from its begin to its end, time off the CPU included, in
//! microseconds since the segment was created. Its category is `on-cpu`; `off-cpu` if some of its
//! exclusive time was not on a CPU; `cut` if the records of regions inside it are lost; or
//! `device`. Its arguments are pfp's measurements: `exclusive_ns`, `off_cpu_ns`, `context`. Tasks
//! have a separate track, with a thread id that no thread has. An instant event says how many
//! records each ring has lost.

use std::collections::HashSet;
use std::io::{self, Write};

use serde::Serialize;

use super::subject::Subject;
use super::tracks::{Cpu, TrackSlice, tracks};

/// First id for tracks that are not threads: above every thread id of the kernel.
const OTHERS: u64 = 1 << 32;

/// An event; missing fields are left out.
#[derive(Debug, Serialize)]
struct TraceEvent<'a, A: Serialize> {
    ph: &'static str,
    pid: u32,
    tid: u64,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Scope of an instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    args: A,
}

#[derive(Debug, Serialize)]
struct NameArgs<'a> {
    name: &'a str,
}

#[derive(Debug, Serialize)]
struct Order {
    sort_index: usize,
}

#[derive(Debug, Serialize)]
struct RegionArgs {
    exclusive_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    off_cpu_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<u32>,
}

#[derive(Debug, Serialize)]
struct LostArgs {
    records: u64,
}

#[derive(Debug, Serialize)]
struct TraceMetadata<'a> {
    producer: &'static str,
    process: &'a str,
    host: &'a str,
    segment_id: &'a str,
    started_unix_ns: String,
    taken_ns: u64,
}

/// Writes the trace.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    let process = &subject.snapshot().process;
    let about = TraceMetadata {
        producer: concat!("pfp-top ", env!("CARGO_PKG_VERSION")),
        process: &process.name,
        host: &process.host,
        segment_id: &process.segment_id,
        // A string, since many JSON readers cannot represent such a large number.
        started_unix_ns: process.started_unix_ns.to_string(),
        taken_ns: subject.whole_ns(subject.snapshot().elapsed_ticks),
    };
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":")?;
    serde_json::to_writer(&mut *out, &about)?;
    write!(out, ",\"traceEvents\":[")?;
    let mut events = Events { out, pid: process.pid, first: true };
    events.say("process_name", 0, NameArgs { name: &process.name })?;
    let mut taken = HashSet::new();
    for (place, track) in tracks(subject).iter().enumerate() {
        let own = Some(u64::from(track.lane.tid)).filter(|tid| track.strand == 0 && *tid > 0);
        // A track without a free thread id gets an id of its own: readers would merge two tracks
        // with the same id.
        let tid = own.filter(|tid| taken.insert(*tid)).unwrap_or(OTHERS + place as u64);
        events.say("thread_name", tid, NameArgs { name: &track.name(subject) })?;
        events.say("thread_sort_index", tid, Order { sort_index: place })?;
        if let Some(lost) = track.lost {
            events.add(&TraceEvent {
                ph: "i",
                pid: process.pid,
                tid,
                name: "records lost before this",
                cat: Some("lost"),
                ts: Some(us(lost.until_ns)),
                dur: None,
                s: Some("t"),
                args: LostArgs { records: lost.records },
            })?;
        }
        for slice in &track.slices {
            events.add(&of_slice(subject, slice, process.pid, tid))?;
        }
    }
    writeln!(out, "\n]}}")
}

fn of_slice<'a>(
    subject: &'a Subject<'_>,
    slice: &TrackSlice,
    pid: u32,
    tid: u64,
) -> TraceEvent<'a, RegionArgs> {
    let cpu = slice.cpu(subject);
    let measured = RegionArgs {
        exclusive_ns: subject.whole_ns(slice.region.exclusive),
        off_cpu_ns: match cpu {
            Cpu::On => Some(0),
            Cpu::Off(ns) => Some(ns),
            Cpu::Unknown | Cpu::Device => None,
        },
        context: Some(slice.region.context).filter(|id| *id > 0 && cpu != Cpu::Device),
    };
    TraceEvent {
        ph: "X",
        pid,
        tid,
        name: subject.point(slice.region.point).map_or("", |shown| &shown.label),
        cat: Some(cpu.word()),
        ts: Some(us(slice.start_ns)),
        dur: Some(us(slice.end_ns - slice.start_ns)),
        s: None,
        args: measured,
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

struct Events<'a> {
    out: &'a mut dyn Write,
    pid: u32,
    first: bool,
}

impl Events<'_> {
    fn add<A: Serialize>(&mut self, event: &TraceEvent<'_, A>) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        Ok(serde_json::to_writer(&mut *self.out, event)?)
    }

    /// Writes a metadata event, which gives a process or a track a property.
    fn say(&mut self, name: &str, tid: u64, args: impl Serialize) -> io::Result<()> {
        let (pid, cat) = (self.pid, None);
        self.add(&TraceEvent { ph: "M", pid, tid, name, cat, ts: None, dur: None, s: None, args })
    }
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::tests;
    use serde_json::{Value, json};

    fn exported(change: impl FnOnce(&mut pfp_read::snapshot::Snapshot)) -> Value {
        serde_json::from_slice(&tests::exported(Format::Chrome, change)).unwrap()
    }

    #[test]
    fn every_record_is_an_event_with_its_figures() {
        let trace = exported(|_| {});
        let events = trace["traceEvents"].as_array().unwrap();
        let complete: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(complete.len(), 7);
        assert_eq!(
            *complete[2],
            json!({"ph": "X", "pid": 4711, "tid": 4711, "name": "io.crc", "cat": "off-cpu",
                   "ts": 150.0, "dur": 40.0, "args": {"exclusive_ns": 10000, "off_cpu_ns": 30000}})
        );
        let task = complete.iter().find(|event| event["args"]["context"] == 7).unwrap();
        let named = events.iter().find(|e| e["name"] == "thread_name" && e["tid"] == task["tid"]);
        assert_eq!(named.unwrap()["args"]["name"], "main, tasks 1");
        let lost: Vec<_> = events.iter().filter(|event| event["ph"] == "i").collect();
        assert_eq!((&lost[0]["args"]["records"], &lost[0]["ts"]), (&json!(10), &json!(320.0)));
        assert_eq!(lost.len(), 1);
    }

    #[test]
    fn hostile_names_stay_in_their_strings() {
        let name = "a\"}],\n\u{0}<b>\\";
        let trace = exported(|snapshot| {
            snapshot.points[4].name = name.into();
            snapshot.lanes[0].name = name.into();
        });
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.iter().filter(|event| event["name"] == name).count(), 2);
        assert!(events.iter().any(|event| event["args"]["name"] == name));
    }
}

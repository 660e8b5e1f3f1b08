//! speedscope's own JSON: exclusive time by call path, and the last moments of every thread from
//! the rings.
//!
//! The first profile is of all threads: exclusive nanoseconds by call path. It has the same paths
//! and times as the export of [folded stacks](super::folded). Then one profile follows for each
//! thread with records, and for its tasks: every region from begin to end, time off the CPU
//! included, in nanoseconds since the segment was created.

use std::io::{self, Write};

use serde::Serialize;

use super::folded::{OTHERS, name, stacks};
use super::subject::Subject;
use super::tracks::{SliceEdge, tracks};
use pfp_model::{Frame, WeighedBy};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Debug, Serialize)]
struct Described<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Debug, Serialize)]
struct SpeedscopeEvent {
    r#type: &'static str,
    frame: usize,
    at: u64,
}

/// Numbers of the frames: points, then lanes, then other callers.
struct Frames<'a>(&'a Subject<'a>);

impl Frames<'_> {
    fn number(&self, frame: Frame) -> usize {
        let (points, lanes) = (self.0.model().points(), &self.0.snapshot().lanes);
        let others = points.len() + lanes.len();
        match frame {
            Frame::Point(id) => {
                points.binary_search_by_key(&id, |figures| figures.id()).unwrap_or(others)
            }
            Frame::Thread(id) => {
                let place = lanes.binary_search_by_key(&id, |lane| lane.id);
                place.map_or(others, |place| points.len() + place)
            }
            // Only samples have waits.
            Frame::Others | Frame::Wait(_) => others,
        }
    }
}

/// Writes the file.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    let process = &subject.snapshot().process;
    write!(
        out,
        "{{\"$schema\":\"{SCHEMA}\",\"exporter\":\"pfp-top {}\",\"name\":",
        env!("CARGO_PKG_VERSION")
    )?;
    serde_json::to_writer(&mut *out, &process.to_string())?;
    write!(out, ",\"activeProfileIndex\":0,\"shared\":{{\"frames\":[")?;
    for figures in subject.model().points() {
        let (name, point) = (name(subject, figures.id()), figures.point());
        let known = !point.file.is_empty();
        let frame = Described {
            name: &name,
            file: known.then_some(&*point.file),
            line: (known && point.line > 0).then_some(point.line),
        };
        serde_json::to_writer(&mut *out, &frame)?;
        writeln!(out, ",")?;
    }
    for lane in &subject.snapshot().lanes {
        let name = subject.thread(lane.id);
        serde_json::to_writer(&mut *out, &Described { name: &name, file: None, line: None })?;
        writeln!(out, ",")?;
    }
    serde_json::to_writer(&mut *out, &Described { name: OTHERS, file: None, line: None })?;
    write!(out, "]}},\"profiles\":[")?;
    let frames = Frames(subject);
    call_paths(subject, &frames, out)?;
    moments(subject, &frames, out)?;
    writeln!(out, "]}}")
}

/// The profile of all threads.
fn call_paths(subject: &Subject<'_>, frames: &Frames<'_>, out: &mut dyn Write) -> io::Result<()> {
    let stacks = stacks(subject, WeighedBy::Time);
    let all = stacks.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
    write!(
        out,
        "{{\"type\":\"sampled\",\"name\":\"exclusive time by call path\",\"unit\":\"nanoseconds\",\
         \"startValue\":0,\"endValue\":{all},\"samples\":["
    )?;
    let mut comma = "";
    for (path, _) in &stacks {
        let path = path.iter().map(|frame| frames.number(*frame));
        write!(out, "{comma}")?;
        serde_json::to_writer(&mut *out, &path.collect::<Vec<_>>())?;
        comma = ",\n";
    }
    write!(out, "],\"weights\":")?;
    let weights: Vec<u64> = stacks.iter().map(|(_, ns)| *ns).collect();
    serde_json::to_writer(&mut *out, &weights)?;
    write!(out, "}}")
}

/// The profiles of the threads' last moments.
fn moments(subject: &Subject<'_>, frames: &Frames<'_>, out: &mut dyn Write) -> io::Result<()> {
    for track in tracks(subject) {
        let Some(first) = track.slices.first() else { continue };
        let last = track.slices.iter().map(|slice| slice.end_ns).max().unwrap_or(first.end_ns);
        write!(out, ",\n{{\"type\":\"evented\",\"name\":")?;
        serde_json::to_writer(&mut *out, &format!("{}, last moments", track.name(subject)))?;
        let start = first.start_ns;
        write!(
            out,
            ",\"unit\":\"nanoseconds\",\"startValue\":{start},\"endValue\":{last},\"events\":["
        )?;
        let mut comma = "";
        for edge in track.edges() {
            let (r#type, slice, at) = match edge {
                SliceEdge::Begin(slice) => ("O", slice, slice.start_ns),
                SliceEdge::End(slice) => ("C", slice, slice.end_ns),
            };
            let frame = frames.number(Frame::Point(slice.region.point));
            write!(out, "{comma}")?;
            serde_json::to_writer(&mut *out, &SpeedscopeEvent { r#type, frame, at })?;
            comma = ",\n";
        }
        write!(out, "]}}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::tests::{self, snapshot, written};
    use pfp_model::Model;
    use serde_json::Value;

    fn exported(change: impl FnOnce(&mut pfp_read::snapshot::Snapshot)) -> Value {
        serde_json::from_slice(&tests::exported(Format::Speedscope, change)).unwrap()
    }

    fn frame<'a>(file: &'a Value, number: &Value) -> &'a str {
        let frames = &file["shared"]["frames"];
        frames[number.as_u64().unwrap() as usize]["name"].as_str().unwrap()
    }

    #[test]
    fn stacks_are_those_of_the_folded_ones() {
        let file = exported(|_| {});
        let profile = &file["profiles"][0];
        let folded = written(Format::Folded, &Model::of(snapshot()), |_| true);
        let samples = profile["samples"].as_array().unwrap();
        let lines = samples.iter().zip(profile["weights"].as_array().unwrap()).map(|(path, ns)| {
            let path = path.as_array().unwrap().iter().map(|number| frame(&file, number));
            format!("my_app;{} {ns}\n", path.collect::<Vec<_>>().join(";"))
        });
        assert_eq!(lines.collect::<String>(), String::from_utf8(folded).unwrap());
    }

    #[test]
    fn the_last_moments_are_those_of_the_rings() {
        let name = "a\"}],\n\u{0}<b>\\";
        let file = exported(|snapshot| snapshot.points[1].name = name.into());
        let profiles = file["profiles"].as_array().unwrap();
        let names: Vec<_> = profiles.iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert_eq!(
            names[1..],
            ["main, last moments", "main, tasks 1, last moments", "reader, last moments"]
        );
        let events: Vec<_> = profiles[2]["events"].as_array().unwrap().iter().collect();
        let found: Vec<_> = events
            .iter()
            .map(|event| {
                (event["type"].as_str(), frame(&file, &event["frame"]), event["at"].as_u64())
            })
            .collect();
        assert_eq!(found, [(Some("O"), name, Some(210_000)), (Some("C"), name, Some(260_000))]);
    }
}

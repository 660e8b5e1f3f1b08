//! Perfetto's trace format, in protocol buffers: the records of the rings, as track events.
//!
//! There is a track for the process and one for each thread. The tasks of a thread have a track
//! below the thread's. A region is a slice from its begin to its end, time off the CPU included;
//! its category is `on-cpu`, `off-cpu` where some of its own time was not on a CPU, or `cut` where
//! regions inside it are lost. The slice has pfp's measurements, `exclusive_ns`, `off_cpu_ns` and
//! `context`, and the region's place in the source. An instant event says how many records each
//! ring has lost. Counters show what was allocated: the bytes of the process that are not freed,
//! and for each point these and the bytes per second. Timestamps are nanoseconds since the segment
//! was created; a clock snapshot ties them to the time of day.
//!
//! The messages are written by hand: only the fields in use, with the numbers of perfetto's
//! `protos/perfetto/trace/`. A trace is a series of packets, so it is written packet by packet.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use prost::Message;

use super::moments::{self, AllocsAt, Values};
use super::subject::Subject;
use super::tracks::{Cpu, ExportTrack, SliceEdge, TrackSlice, tracks};
use pfp_read::snapshot::Process;

/// Id of the trace's only sequence of packets.
const SEQUENCE: u32 = 1;
const SEQ_INCREMENTAL_STATE_CLEARED: u32 = 1;
const SEQ_NEEDS_INCREMENTAL_STATE: u32 = 2;
/// The default clock of timestamps.
const BUILTIN_CLOCK_BOOTTIME: u32 = 6;
const BUILTIN_CLOCK_REALTIME: u32 = 1;
/// Key of [`TracePacket`] in the trace: field 1, bytes with their length.
const PACKET: u8 = 0x0a;

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(message, optional, tag = "6")]
    clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<ClockReading>,
}

#[derive(Clone, PartialEq, Message)]
struct ClockReading {
    #[prost(uint32, optional, tag = "1")]
    clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    #[prost(string, optional, tag = "6")]
    unit_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "EventType", optional, tag = "9")]
    r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(uint64, optional, tag = "34")]
    source_location_iid: Option<u64>,
    #[prost(double, optional, tag = "44")]
    double_counter_value: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum EventType {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "1")]
    event_categories: Vec<InternedName>,
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "3")]
    debug_annotation_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "4")]
    source_locations: Vec<SourceLocation>,
}

/// `EventCategory`, `EventName` and `DebugAnnotationName` all have these fields.
#[derive(Clone, PartialEq, Message)]
struct InternedName {
    #[prost(uint64, optional, tag = "1")]
    iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct SourceLocation {
    #[prost(uint64, optional, tag = "1")]
    iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    file_name: Option<String>,
    #[prost(uint32, optional, tag = "4")]
    line_number: Option<u32>,
}

/// Writes the trace.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut trace = Trace::new(subject, out);
    trace.begin()?;
    let process = trace.add_process()?;
    trace.add_allocs(process)?;
    // The track of the thread whose tasks follow.
    let mut thread = process;
    for track in tracks(subject) {
        let uuid = trace.add_track(&track, process, thread)?;
        if track.strand == 0 {
            thread = uuid;
        }
        trace.add_lost(&track, uuid)?;
        for edge in track.edges() {
            match edge {
                SliceEdge::Begin(slice) => trace.add_begin(slice, uuid)?,
                SliceEdge::End(slice) => trace.add_end(slice, uuid)?,
            }
        }
    }
    Ok(())
}

struct Trace<'a> {
    subject: &'a Subject<'a>,
    out: &'a mut dyn Write,
    packet: Vec<u8>,
    /// Interned strings and their numbers.
    names: Interned<String>,
    categories: Interned<&'static str>,
    annotations: Interned<&'static str>,
    places: Interned<(String, u32)>,
    /// Id of the newest track.
    uuid: u64,
    /// Thread ids that have a track.
    threads: std::collections::HashSet<u32>,
}

struct Interned<T>(HashMap<T, u64>);

impl<T: Eq + Hash + Clone> Interned<T> {
    /// The number of a value. A new value is added to `new`, from which the reader learns its
    /// number.
    fn number<M>(&mut self, of: T, new: &mut Vec<M>, message: impl FnOnce(u64, T) -> M) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(of).or_insert_with_key(|of| {
            new.push(message(next, of.clone()));
            next
        })
    }
}

impl<'a> Trace<'a> {
    fn new(subject: &'a Subject<'a>, out: &'a mut dyn Write) -> Self {
        // The track ids start at a random number, so that merged traces have different ids.
        let digits = subject.snapshot().process.segment_id.get(..8).unwrap_or_default();
        let random = u64::from_str_radix(digits, 16).unwrap_or_default();
        Self {
            subject,
            out,
            packet: Vec::new(),
            names: Interned(HashMap::new()),
            categories: Interned(HashMap::new()),
            annotations: Interned(HashMap::new()),
            places: Interned(HashMap::new()),
            uuid: random << 32,
            threads: std::collections::HashSet::new(),
        }
    }

    fn add(&mut self, mut packet: TracePacket) -> io::Result<()> {
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        packet.sequence_flags.get_or_insert(SEQ_NEEDS_INCREMENTAL_STATE);
        self.packet.clear();
        self.packet.push(PACKET);
        packet.encode_length_delimited(&mut self.packet)?;
        self.out.write_all(&self.packet)
    }

    fn begin(&mut self) -> io::Result<()> {
        let snapshot = self.subject.snapshot();
        let clock = |id, ns| ClockReading { clock_id: Some(id), timestamp: Some(ns) };
        let elapsed = self.subject.whole_ns(snapshot.elapsed_ticks);
        let clocks = vec![
            clock(BUILTIN_CLOCK_BOOTTIME, elapsed),
            clock(BUILTIN_CLOCK_REALTIME, snapshot.taken_unix_ns),
        ];
        self.add(TracePacket {
            clock_snapshot: Some(ClockSnapshot { clocks }),
            sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
            ..TracePacket::default()
        })
    }

    fn add_descriptor(&mut self, mut track: TrackDescriptor) -> io::Result<u64> {
        self.uuid += 1;
        track.uuid = Some(self.uuid);
        self.add(TracePacket { track_descriptor: Some(track), ..TracePacket::default() })?;
        Ok(self.uuid)
    }

    fn add_process(&mut self) -> io::Result<u64> {
        let Process { name, pid, .. } = &self.subject.snapshot().process;
        let track = match self.is_one() {
            true => TrackDescriptor {
                process: Some(ProcessDescriptor {
                    pid: Some(*pid as i32),
                    process_name: Some(name.clone()),
                }),
                ..Default::default()
            },
            false => TrackDescriptor { name: Some(name.clone()), ..Default::default() },
        };
        self.add_descriptor(track)
    }

    /// Whether the subject is one process. If it is several processes shown as one, the threads
    /// have longer names and can have the same ids.
    fn is_one(&self) -> bool {
        self.subject.snapshot().process.members.is_empty()
    }

    fn add_track(&mut self, track: &ExportTrack, process: u64, thread: u64) -> io::Result<u64> {
        let pid = self.subject.snapshot().process.pid;
        let tid = track.lane.tid;
        // A track that is not a thread, or whose thread id another track has, gets a generic
        // descriptor.
        let is_thread = self.is_one() && track.strand == 0 && tid > 0;
        let descriptor = match is_thread && self.threads.insert(tid) {
            true => TrackDescriptor {
                thread: Some(ThreadDescriptor {
                    pid: Some(pid as i32),
                    tid: Some(tid as i32),
                    thread_name: Some(track.name(self.subject)),
                }),
                parent_uuid: Some(process),
                ..Default::default()
            },
            false => TrackDescriptor {
                name: Some(track.name(self.subject)),
                parent_uuid: Some(if track.strand == 0 { process } else { thread }),
                ..Default::default()
            },
        };
        self.add_descriptor(descriptor)
    }

    fn add_lost(&mut self, track: &ExportTrack, uuid: u64) -> io::Result<()> {
        let Some(lost) = track.lost else { return Ok(()) };
        let mut new = InternedData::default();
        let event = TrackEvent {
            category_iids: vec![self.category("lost", &mut new)],
            debug_annotations: vec![self.annotation("records", lost.records, &mut new)],
            r#type: Some(EventType::Instant as i32),
            name_iid: Some(self.name("records lost before this", &mut new)),
            track_uuid: Some(uuid),
            ..TrackEvent::default()
        };
        self.add_event(lost.until_ns, event, new)
    }

    fn add_begin(&mut self, slice: &TrackSlice, uuid: u64) -> io::Result<()> {
        let subject = self.subject;
        let shown = subject.point(slice.region.point);
        let (point, label) = shown.map(|s| (s.figures.point(), &*s.label)).unzip();
        let mut new = InternedData::default();
        let cpu = slice.cpu(subject);
        let exclusive = subject.whole_ns(slice.region.exclusive);
        let mut annotations = vec![self.annotation("exclusive_ns", exclusive, &mut new)];
        match cpu {
            Cpu::On => annotations.push(self.annotation("off_cpu_ns", 0, &mut new)),
            Cpu::Off(ns) => annotations.push(self.annotation("off_cpu_ns", ns, &mut new)),
            Cpu::Unknown | Cpu::Device => {}
        }
        if slice.region.context > 0 && cpu != Cpu::Device {
            annotations.push(self.annotation("context", slice.region.context.into(), &mut new));
        }
        let place = point.filter(|point| !point.file.is_empty());
        let event = TrackEvent {
            category_iids: vec![self.category(cpu.word(), &mut new)],
            debug_annotations: annotations,
            r#type: Some(EventType::SliceBegin as i32),
            name_iid: Some(self.name(label.unwrap_or_default(), &mut new)),
            track_uuid: Some(uuid),
            source_location_iid: place.map(|point| self.place(&point.file, point.line, &mut new)),
            double_counter_value: None,
        };
        self.add_event(slice.start_ns, event, new)
    }

    fn add_end(&mut self, slice: &TrackSlice, uuid: u64) -> io::Result<()> {
        let event = TrackEvent {
            r#type: Some(EventType::SliceEnd as i32),
            track_uuid: Some(uuid),
            ..TrackEvent::default()
        };
        self.add_event(slice.end_ns, event, InternedData::default())
    }

    /// Adds counters of allocations, where there are any.
    fn add_allocs(&mut self, process: u64) -> io::Result<()> {
        let subject = self.subject;
        let only = [AllocsAt::of(subject.snapshot())];
        let moments = match subject.moments.as_slice() {
            [] => &only,
            moments => moments,
        };
        let heap = |moment: &AllocsAt| Some((moment.elapsed_ticks, moment.heap?.live_bytes as f64));
        self.add_counter(process, "heap", "B", &moments.iter().filter_map(heap).collect())?;
        for shown in subject.points() {
            let (id, label) = (shown.figures.id(), &shown.label);
            let (live, rate) = (format!("live {label}"), format!("allocated {label}"));
            self.add_counter(process, &live, "B", &moments::live(moments, id))?;
            let rates = moments::rates(moments, id, subject.ticks_per_second());
            self.add_counter(process, &rate, "B/s", &rates)?;
        }
        Ok(())
    }

    /// Adds a counter, unless all its values are 0.
    fn add_counter(
        &mut self,
        process: u64,
        name: &str,
        unit: &str,
        values: &Values,
    ) -> io::Result<()> {
        if values.iter().all(|(_, value)| *value == 0.0) {
            return Ok(());
        }
        let uuid = self.add_descriptor(TrackDescriptor {
            name: Some(name.to_owned()),
            parent_uuid: Some(process),
            counter: Some(CounterDescriptor { unit_name: Some(unit.to_owned()) }),
            ..TrackDescriptor::default()
        })?;
        for (ticks, value) in values {
            let event = TrackEvent {
                r#type: Some(EventType::Counter as i32),
                track_uuid: Some(uuid),
                double_counter_value: Some(*value),
                ..TrackEvent::default()
            };
            self.add_event(self.subject.whole_ns(*ticks), event, InternedData::default())?;
        }
        Ok(())
    }

    fn add_event(&mut self, ns: u64, event: TrackEvent, new: InternedData) -> io::Result<()> {
        self.add(TracePacket {
            timestamp: Some(ns),
            track_event: Some(event),
            interned_data: (new != InternedData::default()).then_some(new),
            ..TracePacket::default()
        })
    }

    fn name(&mut self, name: &str, new: &mut InternedData) -> u64 {
        self.names.number(name.to_owned(), &mut new.event_names, named)
    }

    fn category(&mut self, name: &'static str, new: &mut InternedData) -> u64 {
        self.categories.number(name, &mut new.event_categories, named)
    }

    fn annotation(
        &mut self,
        name: &'static str,
        value: u64,
        new: &mut InternedData,
    ) -> DebugAnnotation {
        let iid = self.annotations.number(name, &mut new.debug_annotation_names, named);
        DebugAnnotation { name_iid: Some(iid), uint_value: Some(value) }
    }

    fn place(&mut self, file: &str, line: u32, new: &mut InternedData) -> u64 {
        let place = (file.to_owned(), line);
        self.places.number(place, &mut new.source_locations, |iid, (file, line)| SourceLocation {
            iid: Some(iid),
            file_name: Some(file),
            line_number: Some(line),
        })
    }
}

fn named(iid: u64, name: impl Into<String>) -> InternedName {
    InternedName { iid: Some(iid), name: Some(name.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_model::Model;
    use pfp_read::snapshot::Heap;

    use crate::Format;
    use crate::tests;

    #[derive(Clone, PartialEq, Message)]
    struct Packets {
        #[prost(message, repeated, tag = "1")]
        packet: Vec<TracePacket>,
    }

    fn exported(change: impl FnOnce(&mut pfp_read::snapshot::Snapshot)) -> Vec<TracePacket> {
        let out = tests::exported(Format::Perfetto, change);
        Packets::decode(out.as_slice()).unwrap().packet
    }

    #[test]
    fn every_slice_begins_and_ends_on_its_track() {
        let packets = exported(|_| {});
        let mut open: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut slices = 0;
        for packet in &packets {
            let Some(event) = &packet.track_event else { continue };
            let (at, track) = (packet.timestamp.unwrap(), event.track_uuid.unwrap());
            match event.r#type() {
                EventType::SliceBegin => open.entry(track).or_default().push(at),
                EventType::SliceEnd => {
                    assert!(open.get_mut(&track).unwrap().pop().unwrap() <= at);
                    slices += 1;
                }
                EventType::Instant => assert_eq!(at, 320_000),
                EventType::Counter | EventType::Unspecified => panic!("{event:?}"),
            }
        }
        assert_eq!(slices, 7);
        assert!(open.values().all(Vec::is_empty));
    }

    #[test]
    fn allocations_are_counters() {
        let mut snapshot = tests::snapshot();
        let second = snapshot.clock.ticks_per_second as u64;
        let mut moments = Vec::new();
        for (at, bytes, live) in [(1, 1000, 50), (3, 7000, 90), (4, 500, 0)] {
            snapshot.elapsed_ticks = at * second;
            snapshot.heap = Some(Heap { live_bytes: 2 * live, ..Heap::default() });
            let place = snapshot.cells.iter().position(|cell| cell.point == 1).unwrap();
            let cell = std::sync::Arc::make_mut(&mut snapshot.cells[place]);
            (cell.allocs.bytes, cell.heap.live_bytes) = (bytes, live);
            moments.push(AllocsAt::of(&snapshot));
        }
        let model = Model::of(snapshot);
        let mut subject = Subject::new(&model, |_| true, false).unwrap();
        subject.moments = moments;
        let mut out = Vec::new();
        write(&subject, &mut out).unwrap();
        let packets = Packets::decode(out.as_slice()).unwrap().packet;
        let tracks = packets.iter().filter_map(|packet| packet.track_descriptor.as_ref());
        let values = tracks.filter(|track| track.counter.is_some()).map(|track| {
            let of_track = packets.iter().filter_map(|packet| {
                let event = packet.track_event.as_ref()?;
                let value =
                    event.double_counter_value.filter(|_| event.track_uuid == track.uuid)?;
                Some((packet.timestamp? / 1_000_000_000, value))
            });
            (track.name.as_deref().unwrap(), of_track.collect::<Vec<_>>())
        });
        let expected = [
            ("heap", vec![(1, 100.0), (3, 180.0), (4, 0.0)]),
            ("live io.parse", vec![(1, 50.0), (3, 90.0), (4, 0.0)]),
            ("allocated io.parse", vec![(3, 3000.0), (4, 500.0)]),
        ];
        assert_eq!(values.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn interned_numbers_are_defined_before_use() {
        let mut known = (Vec::new(), Vec::new());
        for packet in exported(|_| {}) {
            if let Some(new) = packet.interned_data {
                known.0.extend(new.event_names);
                known.1.extend(new.source_locations);
            }
            let Some(event) = packet.track_event else { continue };
            if let Some(iid) = event.name_iid {
                assert!(known.0.iter().any(|name| name.iid == Some(iid)));
            }
            if let Some(iid) = event.source_location_iid {
                assert!(known.1.iter().any(|place| place.iid == Some(iid)));
            }
        }
        let names: Vec<_> = known.0.into_iter().filter_map(|name| name.name).collect();
        assert_eq!(
            names,
            [
                "io.parse",
                "io.read",
                "io.crc",
                "lz.compress",
                "records lost before this",
                "lz.match_longest_in_the_whole_window"
            ]
        );
    }

    #[test]
    fn threads_are_known_by_their_ids_unless_there_are_several_processes() {
        let threads = |packets: Vec<TracePacket>| {
            let descriptors = packets.into_iter().filter_map(|packet| packet.track_descriptor);
            descriptors.filter_map(|track| track.thread?.tid).collect::<Vec<_>>()
        };
        // A thread with another thread's id still has a track with its name.
        let twins = exported(|snapshot| snapshot.lanes[2].tid = 4711);
        assert_eq!(twins.iter().filter(|packet| packet.track_descriptor.is_some()).count(), 5);
        assert_eq!(threads(twins), [4711, 4712]);
        let several = exported(|s| s.process.members = vec![s.process.clone(), s.process.clone()]);
        assert_eq!(threads(several), [0; 0]);
    }
}

//! The rings' regions as tracks of a trace: one for every thread and one for its tasks, with
//! properly nested regions, in nanoseconds since the segment was created.
//!
//! ```text
//! main     level 0   [work............]
//!          level 1     [parse] [parse]
//! main, tasks 1      [poll]      [poll]
//! ```
//!
//! Tasks and devices have tracks of their own, since their regions are not nested in their
//! thread's. Records may have any bytes: a region that overlaps another's end is cut there, so that
//! readers never see impossible nesting.

use super::subject::Subject;
use pfp_model::timeline::{Region, ThreadTrack as Thread, Timeline};
use pfp_read::snapshot::Lane;

/// The regions of a thread itself, of several of its tasks that ran one after the other, or of one
/// of its devices.
#[derive(Debug)]
pub(super) struct ExportTrack {
    /// The thread.
    pub(super) lane: Lane,
    /// 0 for the thread itself, else the number of the strand of its tasks or devices.
    pub(super) strand: u32,
    /// Number of the device among the thread's devices. `None` if the track is not a device's.
    pub(super) device: Option<u32>,
    /// The slices, in the order of their begins; outer slices come before inner ones.
    pub(super) slices: Vec<TrackSlice>,
    /// Records of the thread that its ring has lost. `None` if there are none, and for tasks and
    /// devices.
    pub(super) lost: Option<LostRecords>,
}

/// The records of a thread that its ring has overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LostRecords {
    /// Number of lost records.
    pub(super) records: u64,
    /// Regions that ended before this time are lost, nanoseconds.
    pub(super) until_ns: u64,
}

/// A region as a slice of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrackSlice {
    /// The region as it was recorded.
    pub(super) region: Region,
    /// The number of enclosing slices.
    pub(super) level: usize,
    /// Begin, nanoseconds.
    pub(super) start_ns: u64,
    /// End, nanoseconds; at or after `start_ns`.
    pub(super) end_ns: u64,
}

/// Where a slice spent its own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cpu {
    /// All of its own time was on a CPU.
    On,
    /// This much of its own time, in nanoseconds, was not on a CPU.
    Off(u64),
    /// Unknown, since regions inside it are lost.
    Unknown,
    /// The region ran on a device.
    Device,
}

impl Cpu {
    /// The category as a word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::On => "on-cpu",
            Self::Off(_) => "off-cpu",
            Self::Unknown => "cut",
            Self::Device => "device",
        }
    }
}

/// The begin or the end of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceEdge<'a> {
    Begin(&'a TrackSlice),
    End(&'a TrackSlice),
}

impl TrackSlice {
    /// Where the slice spent its own time.
    pub(super) fn cpu(&self, subject: &Subject<'_>) -> Cpu {
        let point = subject.point(self.region.point);
        match self.region.away {
            _ if point.is_some_and(|shown| shown.figures.point().device) => Cpu::Device,
            Some(0) => Cpu::On,
            Some(away) => Cpu::Off(subject.whole_ns(away)),
            None => Cpu::Unknown,
        }
    }
}

impl ExportTrack {
    /// The name of the thread, of its tasks, or of one of its devices.
    pub(super) fn name(&self, subject: &Subject<'_>) -> String {
        let name = subject.thread(self.lane.id);
        match (self.strand, self.device) {
            (0, _) => name,
            (_, Some(1)) => format!("{name}, device"),
            (_, Some(device)) => format!("{name}, device {device}"),
            (strand, None) => format!("{name}, tasks {strand}"),
        }
    }

    /// The begins and ends, in the order of time.
    pub(super) fn edges(&self) -> impl Iterator<Item = SliceEdge<'_>> {
        let mut open: Vec<&TrackSlice> = Vec::new();
        let mut next = self.slices.iter().peekable();
        std::iter::from_fn(move || {
            let level = next.peek().map_or(0, |slice| slice.level);
            if open.len() > level {
                return open.pop().map(SliceEdge::End);
            }
            let slice = next.next()?;
            open.push(slice);
            Some(SliceEdge::Begin(slice))
        })
    }
}

/// The tracks of a subject's points. A running thread has a track even if its ring has no records;
/// an ended thread without records has none.
pub(super) fn tracks(subject: &Subject<'_>) -> Vec<ExportTrack> {
    let timeline = Timeline::of(subject.snapshot(), None);
    timeline.tracks.iter().flat_map(|thread| of_thread(subject, thread)).collect()
}

fn of_thread(subject: &Subject<'_>, thread: &Thread) -> Vec<ExportTrack> {
    let mut tracks: Vec<ExportTrack> = Vec::new();
    // Levels are sorted by strand.
    for strand in thread.levels.chunk_by(|one, next| one.strand == next.strand) {
        let (number, device) = (strand[0].strand, strand[0].device);
        let mut regions: Vec<(u32, Region)> = strand
            .iter()
            .flat_map(|level| level.regions.iter().map(|region| (level.depth, *region)))
            .filter(|(_, region)| subject.point(region.point).is_some())
            .collect();
        regions.sort_by_key(|(depth, r)| (r.start, *depth, std::cmp::Reverse(r.end)));
        let lost = thread.lost_until.filter(|_| number == 0);
        let lost = lost
            .map(|until| LostRecords { records: thread.lost, until_ns: subject.whole_ns(until) });
        if regions.is_empty() && number > 0 {
            continue;
        }
        let slices = nested(subject, &regions);
        tracks.push(ExportTrack {
            lane: thread.lane.clone(),
            strand: number,
            device,
            slices,
            lost,
        });
    }
    tracks
}

/// Turns regions, in the order of their begins, into slices that nest properly.
fn nested(subject: &Subject<'_>, regions: &[(u32, Region)]) -> Vec<TrackSlice> {
    let mut slices: Vec<TrackSlice> = Vec::with_capacity(regions.len());
    // Indices of the slices that enclose the next one, with their depths.
    let mut open: Vec<(usize, u32)> = Vec::new();
    for (depth, region) in regions {
        let start_ns = subject.whole_ns(region.start);
        while let Some(&(last, around)) = open.last() {
            let outer = &mut slices[last];
            if around < *depth && region.end <= outer.region.end {
                break;
            }
            outer.end_ns = outer.end_ns.min(start_ns);
            open.pop();
        }
        // The enclosing slice may have been cut, and the inner slice must not end after it.
        let most = open.last().map_or(u64::MAX, |&(last, _)| slices[last].end_ns);
        let end_ns = subject.whole_ns(region.end).min(most);
        let start_ns = start_ns.min(end_ns);
        open.push((slices.len(), *depth));
        slices.push(TrackSlice { region: *region, level: open.len() - 1, start_ns, end_ns });
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{US, record, snapshot};
    use pfp_model::Model;
    use pfp_read::snapshot::{Record, Snapshot};

    fn track_texts(snapshot: Snapshot, passes: impl Fn(u32) -> bool) -> Vec<String> {
        let model = Model::of(snapshot);
        let subject = Subject::new(&model, |figures| passes(figures.id()), false).unwrap();
        let text = |track: &ExportTrack| {
            let edges: Vec<_> = track
                .edges()
                .map(|edge| match edge {
                    SliceEdge::Begin(s) => format!("+{}@{}", s.region.point, s.start_ns / 1000),
                    SliceEdge::End(s) => format!("-{}@{}", s.region.point, s.end_ns / 1000),
                })
                .collect();
            format!("{}: {}", track.name(&subject), edges.join(" "))
        };
        tracks(&subject).iter().map(text).collect()
    }

    #[test]
    fn regions_lie_in_each_other_as_the_program_had_them() {
        assert_eq!(
            track_texts(snapshot(), |_| true),
            [
                "main: +1@0 +2@100 -2@140 +3@150 -3@190 -1@200 +4@250 -4@300",
                "main, tasks 1: +1@210 -1@260",
                "reader: +4@300 +5@310 -5@320 -4@400",
                "packer: ",
            ]
        );
        // The enclosing regions do not pass the filter; the region inside keeps its times.
        assert_eq!(track_texts(snapshot(), |id| id == 2)[0], "main: +2@100 -2@140");
    }

    #[test]
    fn time_off_the_cpu_and_lost_records_are_known() {
        let model = Model::of(snapshot());
        let subject = Subject::new(&model, |_| true, false).unwrap();
        let tracks = tracks(&subject);
        let cpu: Vec<_> = tracks[0].slices.iter().map(|slice| slice.cpu(&subject)).collect();
        assert_eq!(cpu, [Cpu::On, Cpu::On, Cpu::Off(30_000), Cpu::On]);
        assert_eq!(tracks[0].lost, None);
        assert_eq!(tracks[2].lost, Some(LostRecords { records: 10, until_ns: 320_000 }));
        assert_eq!(tracks[2].slices[0].cpu(&subject), Cpu::Unknown);
    }

    #[test]
    fn a_device_has_a_track_of_its_own_and_no_cpu() {
        let mut snapshot = snapshot();
        snapshot.points.iter_mut().find(|point| point.id == 4).unwrap().device = true;
        snapshot.records.push(record(0, 4, (50, 60), 10, 0, 9));
        let model = Model::of(snapshot);
        let subject = Subject::new(&model, |_| true, false).unwrap();
        let tracks = tracks(&subject);
        let names: Vec<String> = tracks.iter().map(|track| track.name(&subject)).collect();
        let expected =
            ["main", "main, tasks 1", "main, device", "reader", "reader, device", "packer"];
        assert_eq!(names, expected);
        let words = |track: &ExportTrack| -> Vec<&str> {
            track.slices.iter().map(|slice| slice.cpu(&subject).word()).collect()
        };
        assert_eq!(words(&tracks[2]), ["device", "device"]);
        assert_eq!(words(&tracks[0]), ["on-cpu", "on-cpu", "off-cpu"]);
    }

    /// Whatever a damaged file contains, no slice ends outside its enclosing one, and time never
    /// runs backwards.
    #[test]
    fn nonsense_comes_out_nested() {
        let mut seed = 1_u64;
        let mut random = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % bound
        };
        let mut snapshot = snapshot();
        snapshot.records = (0..400)
            .map(|_| Record {
                lane: random(3) as u32,
                point: random(9) as u32,
                start: if random(50) == 0 { u64::MAX } else { random(1000) * US },
                span: if random(50) == 0 { u64::MAX } else { random(300) * US },
                exclusive: random(500) * US,
                depth: random(4) as u32,
                context: random(3) as u32,
            })
            .collect();
        let model = Model::of(snapshot);
        let subject = Subject::new(&model, |_| true, false).unwrap();
        let mut begun = 0;
        for track in tracks(&subject) {
            let (mut now, mut open) = (0, Vec::new());
            for edge in track.edges() {
                let at = match edge {
                    SliceEdge::Begin(slice) => {
                        open.push(*slice);
                        begun += 1;
                        slice.start_ns
                    }
                    SliceEdge::End(slice) => {
                        assert_eq!(open.pop(), Some(*slice));
                        slice.end_ns
                    }
                };
                assert!(at >= now, "{at} after {now}");
                now = at;
            }
            assert!(open.is_empty());
        }
        assert_eq!(begun, 400);
    }
}

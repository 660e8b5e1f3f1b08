//! OpenMetrics text 1.0 and other formats that Prometheus and similar programs scrape, of one or
//! several processes.
//!
//! | family | type | of | what it is |
//! |---|---|---|---|
//! | `pfp_calls` | counter | point, thread | finished measurements |
//! | `pfp_exclusive_seconds` | counter | point, thread | time on a CPU, without nested regions |
//! | `pfp_inclusive_seconds` | counter | point, thread | time on a CPU, with nested regions |
//! | `pfp_off_cpu_seconds` | counter | point, thread | time between begin and end, not on a CPU |
//! | `pfp_switches` | counter | point, thread | switches between begin and end |
//! | `pfp_amount` | counter | point, thread, amount | what the calls carried: bytes, items; of points that have amounts |
//! | `pfp_wait_seconds` | counter | point, reason | time waited and queued, if it is sampled |
//! | `pfp_call_exclusive_seconds` | histogram | point, thread | exclusive time of single calls |
//! | `pfp_load` | gauge | point | share of one CPU |
//! | `pfp_enabled` | gauge | point | 1 while it measures, else 0 |
//! | `pfp_elapsed_seconds` | gauge | process | time since its segment was created |
//! | `pfp_overhead_seconds` | counter | process | time that measuring took, by calibrated cost |
//! | `pfp_losses` | counter | process, kind | what was lost, refused or repaired |
//! | `pfp_cells_busy` | gauge | process | cells that were busy, whose figures are of an earlier poll |
//! | `pfp_process` | info | process | its program, machine, state and clock |
//! | `pfp_place_up` | gauge | place | 1 while it answers, else 0; of several places, not in files |
//! | `pfp_build` | info | | the version of pfp-top; not in files |
//!
//! Labels: `process`, made unique where two processes have the same name and id, and `pid`;
//! `point`, made unique in its process; with threads, also `thread` and `lane`; `amount`, its name;
//! `reason` of a wait, and `name` of the variable of a lock or the like.
//! A reset of a point is a reset of its counters.
//!
//! The buckets of the histograms end at 10 ns times powers of two, up to 86 s. A bucket counts only
//! measurements that certainly do not exceed its end. The segment has buckets of its own, at most a
//! thirty-second of their value wide. If a bucket of the segment spans the end of an exported
//! bucket, the next exported bucket counts its measurements. In protobuf, with the feature
//! `native-histograms`, there are native histograms as well: eight buckets to an octave, so that a
//! quantile is off by at most a twentieth.

#[cfg(feature = "native-histograms")]
mod native;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use prometheus_client::collector::Collector;
#[cfg(not(feature = "native-histograms"))]
use prometheus_client::encoding::NoLabelSet;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, LabelSetEncoder, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::series::{Labels, ProcessSeries, SeriesPoint, losses};
use super::subject::Subject;
use pfp_model::headline::clock_word;
use pfp_model::{allocs, heap_samples};
use pfp_read::snapshot::{Allocs, Bucket, Cell, Heap, Loss, Snapshot, Stats, total};

/// End of the first bucket, seconds.
const FIRST: f64 = 1e-8;
/// Ratio of two adjacent ends.
const STEP: f64 = 2.0;
/// Number of finite buckets.
const BUCKETS: usize = 34;

/// The form in which figures are scraped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScrapeFormat {
    /// OpenMetrics text 1.0.
    OpenMetrics,
    /// Prometheus's older text, version 0.0.4.
    Text,
    /// Messages of the type `io.prometheus.client.MetricFamily`, each preceded by its length. The
    /// only form with native histograms.
    #[cfg(feature = "native-histograms")]
    Protobuf,
}

impl ScrapeFormat {
    /// The value of the Content-Type header.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            #[cfg(feature = "native-histograms")]
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        }
    }

    /// Writes the figures of these processes, and which places answer. All processes must differ.
    pub fn write(
        self,
        subjects: &[&Subject<'_>],
        places: BTreeMap<String, bool>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let registry = registry(subjects, Some(places));
        match self {
            Self::OpenMetrics => write_text(&registry, out),
            Self::Text => {
                let mut open = Vec::new();
                write_text(&registry, &mut open)?;
                plain(&String::from_utf8_lossy(&open), out)
            }
            #[cfg(feature = "native-histograms")]
            Self::Protobuf => native::write(&registry, out),
        }
    }
}

/// Converts OpenMetrics text to the older form. The samples stay the same, but a family is named
/// like its samples, such as `pfp_calls_total`, and the units and the end mark are left out.
fn plain(open: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut help = "";
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest;
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                other => ("", other),
            };
            let help = help.split_once(' ').map_or("", |(_, help)| help);
            writeln!(out, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}")?;
        } else if !line.starts_with('#') {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// The registry of the figures of these processes. With `places`, the registry also has the places
/// that answer, and the version of pfp-top; files need neither.
fn registry(subjects: &[&Subject<'_>], places: Option<BTreeMap<String, bool>>) -> Registry {
    let mut known = HashSet::new();
    let part = |subject: &&Subject<'_>| {
        let mut part = ProcessSeries::of(subject);
        let process = &part.snapshot.process;
        if !known.insert((part.process.clone(), process.pid)) {
            let id = process.segment_id.get(..8).unwrap_or(&process.segment_id);
            part.rename(&format!("{} ({id})", part.process));
        }
        part
    };
    let parts = subjects.iter().map(part).collect();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition { parts, places }));
    registry
}

/// Writes the figures of these processes and the end mark of the format. All processes must differ.
pub fn write(subjects: &[&Subject<'_>], out: &mut dyn Write) -> io::Result<()> {
    write_text(&registry(subjects, None), out)
}

fn write_text(registry: &Registry, out: &mut dyn Write) -> io::Result<()> {
    let mut out = TextWriter { out, error: None };
    text::encode(&mut out, registry).map_err(|fmt::Error| {
        out.error.take().unwrap_or_else(|| io::Error::other("the figures have no text"))
    })
}

/// Writes text as bytes and keeps the I/O error, which `fmt::Error` cannot hold.
struct TextWriter<'a> {
    out: &'a mut dyn Write,
    error: Option<io::Error>,
}

impl fmt::Write for TextWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.out.write_all(text.as_bytes()).map_err(|error| {
            self.error = Some(error);
            fmt::Error
        })
    }
}

/// All families with their data.
#[derive(Debug)]
struct Exposition {
    parts: Vec<ProcessSeries>,
    /// Places, and whether each answers. `None` for a file.
    places: Option<BTreeMap<String, bool>>,
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        [("process", self.process.as_str())].encode(encoder)?;
        [("pid", self.pid)].encode(encoder)?;
        if let Some(point) = &self.point {
            [("point", point.as_str())].encode(encoder)?;
        }
        if let Some(elsewhere) = self.elsewhere {
            [(elsewhere, "true")].encode(encoder)?;
        }
        if let Some((thread, lane)) = &self.thread {
            [("thread", thread.as_str())].encode(encoder)?;
            if let Some(lane) = lane {
                [("lane", *lane)].encode(encoder)?;
            }
        }
        if let Some(kind) = self.kind {
            [("kind", kind)].encode(encoder)?;
        }
        if let Some(amount) = &self.amount {
            [("amount", amount.as_str())].encode(encoder)?;
        }
        if let Some((reason, name)) = &self.wait {
            [("reason", reason.as_str()), ("name", name.as_str())].encode(encoder)?;
        }
        Ok(())
    }
}

impl ProcessSeries {
    /// Measurements in each bucket, those beyond all buckets, and their total number.
    fn buckets(&self, cells: &[Arc<Cell>]) -> ([(f64, u64); BUCKETS + 1], u64) {
        let mut end = FIRST;
        let mut buckets = [(f64::INFINITY, 0); BUCKETS + 1];
        for bucket in &mut buckets[..BUCKETS] {
            bucket.0 = end;
            end *= STEP;
        }
        let mut all = 0_u64;
        for Bucket { low, width, count } in cells.iter().flat_map(|cell| &cell.histogram) {
            let longest = self.seconds(low.saturating_add(width.saturating_sub(1)));
            let place = buckets[..BUCKETS].partition_point(|(end, _)| *end < longest);
            // Sums of a damaged file must not overflow.
            let count = (*count).min(u64::MAX - all);
            buckets[place].1 += count;
            all += count;
        }
        (buckets, all)
    }
}

/// The name of a family, its description, and the unit that its name ends with.
type MetricFamily = (&'static str, &'static str, Option<Unit>);

/// The value of a series. A whole number is written without a point.
enum Number {
    Whole(u64),
    Real(f64),
}

/// A sum of a point or thread. `None` if the point does not have this sum.
type SumFn = fn(&Labels, &Stats) -> Option<u64>;

impl Exposition {
    /// Writes a family, with the series that `of` adds for each process.
    fn family(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, unit): &MetricFamily,
        kind: MetricType,
        of: impl Fn(&ProcessSeries, &mut dyn FnMut(&Labels, Number) -> fmt::Result) -> fmt::Result,
    ) -> fmt::Result {
        // The error stops at the first series.
        let has_any = |part| of(part, &mut |_, _| Err(fmt::Error)).is_err();
        if !self.parts.iter().any(has_any) {
            return Ok(());
        }
        let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for part in &self.parts {
            of(part, &mut |labels, value| {
                let series = metric.encode_family(labels)?;
                match (kind, value) {
                    (MetricType::Counter, Number::Whole(value)) => {
                        ConstCounter::new(value).encode(series)
                    }
                    (MetricType::Counter, Number::Real(value)) => {
                        ConstCounter::new(value).encode(series)
                    }
                    (_, Number::Whole(value)) => ConstGauge::new(value).encode(series),
                    (_, Number::Real(value)) => ConstGauge::new(value).encode(series),
                }
            })?;
        }
        Ok(())
    }

    /// Writes a family with a sum of every point, or of every point and thread.
    fn sum(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        family: &MetricFamily,
        of: SumFn,
    ) -> fmt::Result {
        self.family(encoder, family, MetricType::Counter, |part, add| {
            part.each(|labels, _, cells| match (of(labels, &total(cells)), &family.2) {
                (None, _) => Ok(()),
                (Some(sum), None) => add(labels, Number::Whole(sum)),
                (Some(ticks), Some(_)) => add(labels, Number::Real(part.seconds(ticks))),
            })
        })
    }

    /// Writes the amounts of regions; nothing if no point has amounts.
    fn amounts(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let has_any =
            |part: &ProcessSeries| part.snapshot.points.iter().any(|p| !p.amounts.is_empty());
        if !self.parts.iter().any(has_any) {
            return Ok(());
        }
        let help = "What the calls carried: bytes, floating-point operations, items.";
        self.family(encoder, &("pfp_amount", help, None), MetricType::Counter, |part, add| {
            part.each(|labels, _, cells| {
                part.amounts(cells).try_for_each(|(name, sum)| {
                    let labels = Labels { amount: Some(name.to_owned()), ..labels.clone() };
                    add(&labels, Number::Real(sum as f64))
                })
            })
        })
    }

    /// Writes what regions have allocated; nothing if no point counts it.
    fn allocs(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Family = (&'static str, &'static str, MetricType, fn(&Allocs) -> u64);
        use MetricType::Counter;
        const FAMILIES: [Family; 3] = [
            ("pfp_allocs", "Allocations, without nested calls.", Counter, |allocs| allocs.allocs),
            ("pfp_alloc_bytes", "Allocated bytes, without nested calls.", Counter, |it| it.bytes),
            ("pfp_freed_bytes", "Freed bytes, without nested calls.", Counter, |it| it.freed),
        ];
        for (name, help, kind, of) in FAMILIES {
            self.family(encoder, &(name, help, None), kind, |part, add| {
                part.each(|labels, _, cells| match allocs(cells) {
                    sum if !sum.is_any() => Ok(()),
                    sum => add(labels, Number::Whole(of(&sum))),
                })
            })?;
        }
        Ok(())
    }

    /// Writes the memory of each point, and of each process, that is not freed yet.
    fn live(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Allocated bytes that are not freed yet, estimated by samples.";
        self.family(encoder, &("pfp_live_bytes", help, None), MetricType::Gauge, |part, add| {
            part.each(|labels, _, cells| match (allocs(cells), heap_samples(cells)) {
                (allocs, heap) if !allocs.is_any() && !heap.is_any() => Ok(()),
                (_, heap) => add(labels, Number::Whole(heap.live_bytes)),
            })
        })?;
        type Family = (&'static str, &'static str, fn(&Heap) -> u64);
        const FAMILIES: [Family; 2] = [
            ("pfp_process_live_bytes", "The same of the whole process.", |heap| heap.live_bytes),
            ("pfp_process_peak_bytes", "The most of them so far.", |heap| heap.peak_bytes),
        ];
        for (name, help, of) in FAMILIES {
            self.family(encoder, &(name, help, None), MetricType::Gauge, |part, add| match &part
                .snapshot
                .heap
            {
                Some(heap) => add(&part.of_process(), Number::Whole(of(heap))),
                None => Ok(()),
            })?;
        }
        Ok(())
    }

    /// Writes the times of waits.
    fn waits(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time that threads waited in the point, or were queued, by reason; sampled.";
        let waits = ("pfp_wait", help, Some(Unit::Seconds));
        self.family(encoder, &waits, MetricType::Counter, |part, add| {
            part.waits(|labels, seconds| add(labels, Number::Real(seconds)))
        })
    }

    fn histograms(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if !self.parts.iter().any(|part| part.histograms) {
            return Ok(());
        }
        let mut metric = encoder.encode_descriptor(
            "pfp_call_exclusive",
            "Time on a CPU of single calls, nested regions taken out.",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for part in self.parts.iter().filter(|part| part.histograms) {
            part.each(|labels, _, cells| {
                let (buckets, count) = part.buckets(cells);
                let sum = part.seconds(total(cells).exclusive);
                let mut series = metric.encode_family(labels)?;
                #[cfg(feature = "native-histograms")]
                return native::encode(&mut series, part, cells, sum, count, &buckets);
                #[cfg(not(feature = "native-histograms"))]
                series.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            })?;
        }
        Ok(())
    }

    fn points(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Share of one CPU that the point takes, nested regions taken out.";
        self.family(out, &("pfp_load", help, None), MetricType::Gauge, |part, add| {
            let mut loads = part.points.iter().filter_map(|it| Some((&it.labels, it.load?)));
            loads.try_for_each(|(labels, load)| add(labels, Number::Real(load)))
        })?;
        let enabled = ("pfp_enabled", "Whether the point measures.", None);
        self.family(out, &enabled, MetricType::Gauge, |part, add| {
            let value = |point: &SeriesPoint| Number::Real(f64::from(u8::from(point.enabled)));
            part.points.iter().try_for_each(|point| add(&point.labels, value(point)))
        })?;
        let help = "Calls that reached their point's limit, or that the program asked to keep.";
        self.family(out, &("pfp_slow_calls", help, None), MetricType::Counter, |part, add| {
            let mut counts = part.points.iter().filter_map(|it| Some((&it.labels, it.slow_calls?)));
            counts.try_for_each(|(labels, count)| add(labels, Number::Whole(count)))
        })
    }

    fn processes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time since the process's segment was created.";
        let elapsed = ("pfp_elapsed", help, Some(Unit::Seconds));
        self.family(encoder, &elapsed, MetricType::Gauge, |part, add| {
            add(&part.of_process(), Number::Real(part.seconds(part.snapshot.elapsed_ticks)))
        })?;
        let help = "Time that measuring took: calls by the calibrated time of a begin and end.";
        let overhead = ("pfp_overhead", help, Some(Unit::Seconds));
        self.family(encoder, &overhead, MetricType::Counter, |part, add| {
            add(&part.of_process(), Number::Real(part.overhead()))
        })?;
        let help =
            "Cells that could not be read consistently; their figures are from an earlier poll.";
        self.family(encoder, &("pfp_cells_busy", help, None), MetricType::Gauge, |part, add| {
            let busy = part.snapshot.losses[Loss::CellsBusy];
            add(&part.of_process(), Number::Real(busy as f64))
        })?;
        let losses_of = ("pfp_losses", "What was lost, refused or repaired.", None);
        self.family(encoder, &losses_of, MetricType::Counter, |part, add| {
            losses(&part.snapshot).try_for_each(|(kind, count)| {
                add(&Labels { kind: Some(kind), ..part.of_process() }, Number::Whole(count))
            })
        })?;
        let mut metric = encoder.encode_descriptor(
            "pfp_process",
            "The process, and the clock that it measures with.",
            None,
            MetricType::Info,
        )?;
        for part in &self.parts {
            let Snapshot { process, clock, .. } = part.snapshot.as_ref();
            let members = match process.members.as_slice() {
                [] => std::slice::from_ref(process),
                members => members,
            };
            for member in members {
                let is_all = std::ptr::eq(member, process);
                let name = if is_all { &part.process } else { &member.name };
                metric.encode_info(&vec![
                    ("process", name.clone()),
                    ("pid", member.pid.to_string()),
                    ("exe", member.exe.clone()),
                    ("host", member.host.clone()),
                    ("segment", member.segment_id.clone()),
                    ("state", member.state.word().to_owned()),
                    ("clock", clock_word(clock.kind).to_owned()),
                ])?;
            }
        }
        let Some(places) = &self.places else { return Ok(()) };
        if !places.is_empty() {
            let mut metric = encoder.encode_descriptor(
                "pfp_place_up",
                "Whether the place of --via answers.",
                None,
                MetricType::Gauge,
            )?;
            for (name, is_up) in places {
                let labels = [("place", name.as_str())];
                let value = f64::from(u8::from(*is_up));
                ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
        let mut metric = encoder.encode_descriptor(
            "pfp_build",
            "The version of pfp-top.",
            None,
            MetricType::Info,
        )?;
        metric.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        let seconds = || Some(Unit::Seconds);
        let exclusive = "Time on a CPU, nested regions taken out.";
        let inclusive = "Time on a CPU with nested regions; recursion counted once.";
        let off_cpu = "Time between begin and end that the thread was not on a CPU.";
        let switches = "Switches of the thread noticed between begin and end.";
        let sums: [(MetricFamily, SumFn); 5] = [
            (("pfp_calls", "Finished measurements.", None), |_, s| Some(s.count)),
            (("pfp_exclusive", exclusive, seconds()), |labels, s| {
                (!labels.is_wall()).then_some(s.exclusive)
            }),
            (("pfp_inclusive", inclusive, seconds()), |_, s| Some(s.inclusive)),
            (("pfp_off_cpu", off_cpu, seconds()), |_, s| Some(s.off_cpu)),
            (("pfp_switches", switches, None), |_, s| Some(s.switches)),
        ];
        sums.iter().try_for_each(|(family, of)| self.sum(out, family, *of))?;
        self.amounts(out)?;
        self.allocs(out)?;
        self.live(out)?;
        self.waits(out)?;
        self.histograms(out)?;
        self.points(out)?;
        self.processes(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_model::Model;
    use pfp_read::snapshot::Limit;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;
    use pfp_read::waits::{WaitTotal, WaitTotals, WaitsReport};

    fn exported(per_thread: bool, change: impl Fn(&mut Snapshot)) -> (Model, String) {
        let mut snapshot = Synthetic::new().poll().unwrap();
        change(&mut snapshot);
        let model = Model::of(snapshot);
        let mut out = Vec::new();
        write(&[&Subject::new(&model, |_| true, per_thread).unwrap()], &mut out).unwrap();
        (model, String::from_utf8(out).unwrap())
    }

    fn value(text: &str, series: &str) -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series} in {text}")).parse().unwrap()
    }

    #[test]
    fn counters_are_the_sums_of_the_snapshot() {
        let (model, text) = exported(false, |_| {});
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        for figures in model.points() {
            let labels =
                format!("{{process=\"my_app\",pid=\"4711\",point=\"{}\"}}", figures.name());
            let sums = figures.total();
            let of = |name: &str| value(&text, &format!("{name}{labels}"));
            assert_eq!(of("pfp_calls_total"), sums.count as f64);
            assert_eq!(of("pfp_exclusive_seconds_total"), sums.exclusive as f64 / 2.6e9);
            assert_eq!(of("pfp_inclusive_seconds_total"), sums.inclusive as f64 / 2.6e9);
            assert_eq!(of("pfp_off_cpu_seconds_total"), sums.off_cpu as f64 / 2.6e9);
            assert_eq!(of("pfp_call_exclusive_seconds_count"), sums.count as f64);
        }
    }

    #[test]
    fn a_bucket_counts_only_certainly_shorter_measurements() {
        let (model, text) = exported(false, |_| {});
        let parse = &model.points()[1];
        let mut longer = 0;
        let labels = "process=\"my_app\",pid=\"4711\",point=\"io.parse\"} ";
        let ends: Vec<(f64, u64)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("pfp_call_exclusive_seconds_bucket{le=\""))
            .filter(|line| line.contains(labels))
            .map(|line| {
                let (end, counted) = (line.split('"').next(), line.rsplit(' ').next());
                let end = end.unwrap().replace("+Inf", "inf").parse().unwrap();
                (end, counted.unwrap().parse().unwrap())
            })
            .collect();
        assert_eq!(ends.len(), BUCKETS + 1);
        for (power, (end, counted)) in ends.into_iter().enumerate() {
            let expected = FIRST * STEP.powi(power as i32);
            assert_eq!(end, if power < BUCKETS { expected } else { f64::INFINITY });
            let low = |b: &Bucket| b.low as f64 / 2.6e9 <= end;
            let high = |b: &Bucket| (b.low + b.width) as f64 / 2.6e9 <= end;
            let buckets = parse.buckets();
            let most: u64 = buckets.iter().filter(|b| low(b)).map(|b| b.count).sum();
            let surely: u64 = buckets.iter().filter(|b| high(b)).map(|b| b.count).sum();
            assert!((surely..=most).contains(&counted), "{end}: {counted}");
            longer += u64::from(counted < parse.total().count);
        }
        assert!((10..30).contains(&longer), "the scale fits a call of tens of microseconds");
    }

    #[test]
    fn threads_add_up_and_have_no_twins() {
        let (model, text) = exported(true, |snapshot| snapshot.lanes[1].name = "main".into());
        let lines: Vec<_> = text.lines().filter(|l| l.starts_with("pfp_calls_total{")).collect();
        let mut series: Vec<_> = lines.iter().map(|l| l.rsplit_once(' ').unwrap().0).collect();
        series.sort_unstable();
        series.dedup();
        assert_eq!(series.len(), lines.len());
        let sum = |point: &str| -> f64 {
            let of = |line: &&&str| line.contains(&format!("point=\"{point}\""));
            lines
                .iter()
                .filter(of)
                .map(|l| l.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
                .sum()
        };
        assert_eq!(sum("io.parse"), model.points()[1].total().count as f64);
    }

    #[test]
    fn several_processes_are_exported_one_by_one() {
        let (_, text) = exported(false, |snapshot| {
            let member = |pid| pfp_read::snapshot::Process {
                pid,
                segment_id: format!("{pid:032x}"),
                ..snapshot.process.clone()
            };
            snapshot.process.members = vec![member(7), member(9)];
            snapshot.points[1].process = Some(1);
        });
        let info = |pid: u32| format!("pfp_process_info{{process=\"my_app\",pid=\"{pid}\",");
        assert!(text.contains(&info(7)) && text.contains(&info(9)) && !text.contains(&info(4711)));
        value(&text, "pfp_calls_total{process=\"my_app\",pid=\"9\",point=\"io.parse\"}");
    }

    /// The label lets a query leave devices out of a sum over CPUs.
    #[test]
    fn device_time_is_labelled_and_kept_out_of_cpu_sums() {
        let (_, text) = exported(false, |snapshot| {
            snapshot.points.iter_mut().find(|point| point.id == 4).unwrap().device = true;
        });
        let counters: Vec<&str> =
            text.lines().filter(|line| line.starts_with("pfp_exclusive_seconds_total{")).collect();
        let marked = counters.iter().filter(|line| line.contains(",device=\"true\"} "));
        assert!(counters.len() > 1 && marked.count() == 1, "{counters:#?}");
    }

    /// Wall-clock spans export calls and elapsed time, and a label of their own.
    #[test]
    fn spans_of_the_clock_have_no_exclusive_time_and_no_load() {
        let (_, text) = exported(false, |snapshot| {
            let point = snapshot.points.iter_mut().find(|point| point.id == 4).unwrap();
            (point.device, point.wall) = (true, true);
        });
        let families: Vec<&str> = text
            .lines()
            .filter(|line| line.contains(",wall=\"true\""))
            .filter_map(|line| line.split('{').next())
            .collect();
        for family in ["pfp_calls_total", "pfp_inclusive_seconds_total", "pfp_enabled"] {
            assert_eq!(families.iter().filter(|it| **it == family).count(), 1, "{families:?}");
        }
        for family in ["pfp_exclusive_seconds_total", "pfp_load"] {
            assert!(!families.contains(&family), "{families:?}");
        }
        assert!(!text.contains("device="), "{text}");
    }

    #[test]
    fn waits_have_their_reason_and_the_name_of_a_lock() {
        let total = |point, reason: &str, name: &str, ns| WaitTotal {
            point,
            reason: reason.into(),
            name: name.into(),
            ns,
        };
        let (model, text) = exported(false, |snapshot| {
            let waits = vec![
                total(None, "sleep", "", 9_000_000_000),
                total(Some(1), "lock", "JOBS", 1_500_000_000),
                total(Some(1), "run queue", "", 250_000_000),
                total(Some(99), "lock", "JOBS", 1),
            ];
            let totals = Some(WaitTotals { since_unix_ns: 1, seconds: 9.0, waits });
            snapshot.waits = Some(Arc::new(WaitsReport { totals, ..WaitsReport::default() }));
        });
        let point = model.point(1).unwrap().name();
        let of = |reason: &str, name: &str| {
            let labels = format!("process=\"my_app\",pid=\"4711\",point=\"{point}\"");
            let labels = format!("{{{labels},reason=\"{reason}\",name=\"{name}\"}}");
            value(&text, &format!("pfp_wait_seconds_total{labels}"))
        };
        assert_eq!((of("lock", "JOBS"), of("run queue", "")), (1.5, 0.25));
        assert_eq!(text.matches("pfp_wait_seconds_total{").count(), 2, "points that are exported");
    }

    #[test]
    fn points_with_a_limit_have_a_count_of_slow_calls() {
        let (model, text) = exported(false, |snapshot| {
            snapshot.points[1].limit = Some(Limit { ns: 5_000, cpu: false });
            snapshot.points[2].slow_calls = 3;
        });
        for (id, count) in [(1, 0.0), (2, 3.0)] {
            let point = model.point(id).unwrap().name();
            let labels = format!("process=\"my_app\",pid=\"4711\",point=\"{point}\"");
            assert_eq!(value(&text, &format!("pfp_slow_calls_total{{{labels}}}")), count);
        }
        assert_eq!(text.matches("pfp_slow_calls_total{").count(), 2);
    }

    #[test]
    fn a_process_has_its_memory_even_if_no_point_counts() {
        let (_, text) = exported(false, |snapshot| {
            snapshot.heap = Some(Heap { live_bytes: 70, live_samples: 1, peak_bytes: 90 });
        });
        let of = |name| value(&text, &format!("{name}{{process=\"my_app\",pid=\"4711\"}}"));
        assert_eq!((of("pfp_process_live_bytes"), of("pfp_process_peak_bytes")), (70.0, 90.0));
        assert!(!text.contains("pfp_allocs"), "families without series are left out: {text}");
    }

    #[test]
    fn a_hostile_name_stays_in_its_label() {
        let (_, text) = exported(false, |snapshot| {
            snapshot.points[1].name = "a\"} 1\n# EOF\nb\\".into();
        });
        assert!(text.contains("point=\"a\\\"} 1\\n# EOF\\nb\\\\\"}"), "{text}");
        assert_eq!(text.lines().filter(|line| *line == "# EOF").count(), 1);
    }
}

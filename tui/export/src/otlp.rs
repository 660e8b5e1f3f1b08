//! OpenTelemetry's metrics, which `pfp-top push` sends to a collector: the figures of
//! [`openmetrics`](super::openmetrics), with names by OpenTelemetry's conventions. Prometheus
//! converts them back to its own names.
//!
//! | metric | kind | unit | attributes | in Prometheus |
//! |---|---|---|---|---|
//! | `pfp.calls` | sum | `{call}` | point, thread | `pfp_calls_total` |
//! | `pfp.exclusive` | sum | s | point, thread | `pfp_exclusive_seconds_total` |
//! | `pfp.inclusive` | sum | s | point, thread | `pfp_inclusive_seconds_total` |
//! | `pfp.off_cpu` | sum | s | point, thread | `pfp_off_cpu_seconds_total` |
//! | `pfp.switches` | sum | `{switch}` | point, thread | `pfp_switches_total` |
//! | `pfp.amount` | sum | | point, thread, amount | `pfp_amount_total` |
//! | `pfp.allocs` | sum | `{allocation}` | point, thread | `pfp_allocs_total` |
//! | `pfp.alloc_bytes` | sum | By | point, thread | `pfp_alloc_bytes_total` |
//! | `pfp.freed_bytes` | sum | By | point, thread | `pfp_freed_bytes_total` |
//! | `pfp.wait` | sum | s | point, reason | `pfp_wait_seconds_total` |
//! | `pfp.call.exclusive` | exponential histogram | s | point, thread | `pfp_call_exclusive_seconds` |
//! | `pfp.live_bytes` | gauge | By | point, thread | `pfp_live_bytes` |
//! | `pfp.load` | gauge | `{cpu}` | point | `pfp_load` |
//! | `pfp.enabled` | gauge | | point | `pfp_enabled` |
//! | `pfp.overhead` | sum | s | | `pfp_overhead_seconds_total` |
//! | `pfp.losses` | sum | `{loss}` | kind | `pfp_losses_total` |
//! | `pfp.cells.busy` | gauge | `{cell}` | | `pfp_cells_busy` |
//! | `pfp.elapsed` | gauge | s | | `pfp_elapsed_seconds` |
//! | `pfp.process.info` | gauge, 1 | | state, clock | `pfp_process_info` |
//!
//! Sums are monotonic and cumulative. A process is a resource (`service.name`,
//! `service.instance.id`, `process.pid`, `process.executable.name` and `.path`,
//! `host.name`), whose instance is the random id of its segment. Attributes: `pfp.point`
//! (and `pfp.device` or `pfp.wall`), `thread.name` and `pfp.lane`, `pfp.amount.name`,
//! `pfp.wait.reason` and `pfp.wait.name`, `pfp.loss.kind`, `pfp.process.state`, `pfp.clock`.
//!
//! Sums begin with the segment. If a point was reset before this program first read it, its sums
//! begin at that first reading (see [`Begin`](super::Begin)).

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::native::{Native, SCHEMA, ZERO};
use super::series::{Labels, ProcessSeries, losses};
use super::subject::Subject;
use pfp_model::headline::clock_word;
use pfp_model::{allocs, heap_samples};
use pfp_read::snapshot::{Cell, Loss, Process, total};
use pfp_read::waits::WaitTotals;

/// Data points in one request: about a megabyte; receivers accept four or more.
const AT_ONCE: usize = 8_000;
const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// The name and description of a metric.
struct MetricInfo {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    is_sum: bool,
}

const fn sum(name: &'static str, unit: &'static str, about: &'static str) -> MetricInfo {
    MetricInfo { name, unit, about, is_sum: true }
}

const fn gauge(name: &'static str, unit: &'static str, about: &'static str) -> MetricInfo {
    MetricInfo { name, unit, about, is_sum: false }
}

/// The metrics that are numbers, in the order of [`NumberKind`].
const FAMILIES: [MetricInfo; 21] = [
    sum("pfp.calls", "{call}", "Finished measurements."),
    sum("pfp.exclusive", "s", "Time on a CPU, nested regions taken out."),
    sum("pfp.inclusive", "s", "Time on a CPU with nested regions; recursion counted once."),
    sum("pfp.off_cpu", "s", "Time between begin and end that the thread was not on a CPU."),
    sum("pfp.switches", "{switch}", "Switches of the thread noticed between begin and end."),
    sum("pfp.amount", "", "What the calls carried: bytes, floating-point operations, items."),
    sum("pfp.allocs", "{allocation}", "Allocations, without nested calls."),
    sum("pfp.alloc_bytes", "By", "Allocated bytes, without nested calls."),
    sum("pfp.freed_bytes", "By", "Freed bytes, without nested calls."),
    sum("pfp.wait", "s", "Time that threads waited in the point, or were queued; sampled."),
    gauge("pfp.live_bytes", "By", "Allocated bytes that are not freed yet, estimated by samples."),
    gauge("pfp.load", "{cpu}", "Share of one CPU that the point takes, nested regions taken out."),
    gauge("pfp.enabled", "", "Whether the point measures."),
    sum("pfp.overhead", "s", "Time that measuring took: calls by the calibrated time of each."),
    sum(
        "pfp.slow_calls",
        "{call}",
        "Calls that reached their point's limit, or kept by the program.",
    ),
    sum("pfp.losses", "{loss}", "What was lost, refused or repaired."),
    gauge(
        "pfp.cells.busy",
        "{cell}",
        "Cells that could not be read consistently; their figures are from an earlier poll.",
    ),
    gauge("pfp.process.live_bytes", "By", "The same as pfp.live_bytes, of the whole process."),
    gauge("pfp.process.peak_bytes", "By", "The most pfp.process.live_bytes so far."),
    gauge("pfp.elapsed", "s", "Time since the process's segment was created."),
    gauge("pfp.process.info", "", "The process, and the clock that it measures with."),
];

/// A metric that is a number.
#[derive(Clone, Copy)]
enum NumberKind {
    Calls,
    Exclusive,
    Inclusive,
    OffCpu,
    Switches,
    Amount,
    Allocs,
    AllocBytes,
    FreedBytes,
    Wait,
    LiveBytes,
    Load,
    Enabled,
    Overhead,
    SlowCalls,
    Losses,
    CellsBusy,
    ProcessLiveBytes,
    ProcessPeakBytes,
    Elapsed,
    Info,
}

/// Sends the figures of these processes as one or several requests, one after the other, so that
/// each request stays within the maximum size. Stops at the first error of `send` and returns that
/// error.
pub fn requests<E>(
    subjects: &[Subject<'_>],
    mut send: impl FnMut(&ExportMetricsServiceRequest) -> Result<(), E>,
) -> Result<(), E> {
    let mut batch = Batch::default();
    for subject in subjects {
        let part = ProcessSeries::of(subject);
        let mut metrics = ProcessMetrics::of(subject, &part);
        metrics.process(&part);
        part.each(|labels, point, cells| {
            metrics.series(&part, labels, subject.begin.of(point.resets), cells);
            match batch.data_points + metrics.data_points >= AT_ONCE {
                true => {
                    batch.take(&mut metrics);
                    batch.send(&mut send)
                }
                false => Ok(()),
            }
        })?;
        for point in &part.points {
            let attributes = attributes(&point.labels);
            if let Some(load) = point.load {
                metrics.gauge(NumberKind::Load, attributes.clone(), Number::AsDouble(load));
            }
            if let Some(count) = point.slow_calls {
                let begin = metrics.begin_unix_ns;
                metrics.sum(NumberKind::SlowCalls, begin, attributes.clone(), whole(count));
            }
            metrics.gauge(NumberKind::Enabled, attributes, Number::AsInt(point.enabled.into()));
            if batch.data_points + metrics.data_points >= AT_ONCE {
                batch.take(&mut metrics);
                batch.send(&mut send)?;
            }
        }
        let begin = WaitTotals::of(&part.snapshot).map_or(0, |totals| totals.since_unix_ns);
        part.waits(|labels, seconds| {
            let value = Number::AsDouble(seconds);
            metrics.sum(NumberKind::Wait, begin, attributes(labels), value);
            Ok(())
        })?;
        batch.take(&mut metrics);
    }
    batch.send(&mut send)
}

/// The content of one request.
#[derive(Default)]
struct Batch {
    resources: Vec<ResourceMetrics>,
    data_points: usize,
}

impl Batch {
    fn take(&mut self, metrics: &mut ProcessMetrics) {
        if metrics.data_points > 0 {
            self.data_points += metrics.data_points;
            self.resources.push(metrics.take());
        }
    }

    fn send<E>(
        &mut self,
        send: &mut impl FnMut(&ExportMetricsServiceRequest) -> Result<(), E>,
    ) -> Result<(), E> {
        self.data_points = 0;
        match std::mem::take(&mut self.resources) {
            none if none.is_empty() => Ok(()),
            resource_metrics => send(&ExportMetricsServiceRequest { resource_metrics }),
        }
    }
}

/// The metrics of one process.
struct ProcessMetrics {
    resource: Resource,
    taken_unix_ns: u64,
    begin_unix_ns: u64,
    numbers: [Vec<NumberDataPoint>; FAMILIES.len()],
    calls: Vec<ExponentialHistogramDataPoint>,
    data_points: usize,
}

impl ProcessMetrics {
    fn of(subject: &Subject<'_>, part: &ProcessSeries) -> Self {
        Self {
            resource: resource(&part.snapshot.process),
            taken_unix_ns: part.snapshot.taken_unix_ns,
            begin_unix_ns: subject.begin.of(0),
            numbers: Default::default(),
            calls: Vec::new(),
            data_points: 0,
        }
    }

    /// Adds a sum that begins at `begin_unix_ns`. If the wall clock was set back since then, the
    /// begin is moved to the time of the snapshot, since a sum must not begin after its data point.
    fn sum(
        &mut self,
        of: NumberKind,
        begin_unix_ns: u64,
        attributes: Vec<KeyValue>,
        value: Number,
    ) {
        let begin = begin_unix_ns.min(self.taken_unix_ns);
        self.number(of, begin, attributes, value);
    }

    fn gauge(&mut self, of: NumberKind, attributes: Vec<KeyValue>, value: Number) {
        self.number(of, 0, attributes, value);
    }

    fn number(
        &mut self,
        of: NumberKind,
        begin_unix_ns: u64,
        attributes: Vec<KeyValue>,
        value: Number,
    ) {
        self.data_points += 1;
        self.numbers[of as usize].push(NumberDataPoint {
            attributes,
            start_time_unix_nano: begin_unix_ns,
            time_unix_nano: self.taken_unix_ns,
            value: Some(value),
            ..NumberDataPoint::default()
        });
    }

    /// Adds the figures of a point, or of one of its threads.
    fn series(&mut self, part: &ProcessSeries, labels: &Labels, begin: u64, cells: &[Arc<Cell>]) {
        let stats = total(cells);
        let attributes = attributes(labels);
        let time = |ticks| Number::AsDouble(part.seconds(ticks));
        let exclusive = (!labels.is_wall()).then(|| (NumberKind::Exclusive, time(stats.exclusive)));
        let others = [
            (NumberKind::Calls, whole(stats.count)),
            (NumberKind::Switches, whole(stats.switches)),
            (NumberKind::Inclusive, time(stats.inclusive)),
            (NumberKind::OffCpu, time(stats.off_cpu)),
        ];
        for (of, value) in others.into_iter().chain(exclusive) {
            self.sum(of, begin, attributes.clone(), value);
        }
        for (name, sum) in part.amounts(cells) {
            let mut attributes = attributes.clone();
            attributes.push(text("pfp.amount.name", name));
            self.sum(
                NumberKind::Amount,
                begin,
                attributes,
                whole(u64::try_from(sum).unwrap_or(u64::MAX)),
            );
        }
        let (sums, heap) = (allocs(cells), heap_samples(cells));
        if sums.is_any() || heap.is_any() {
            for (of, value) in [
                (NumberKind::Allocs, sums.allocs),
                (NumberKind::AllocBytes, sums.bytes),
                (NumberKind::FreedBytes, sums.freed),
            ] {
                self.sum(of, begin, attributes.clone(), whole(value));
            }
            self.gauge(NumberKind::LiveBytes, attributes.clone(), whole(heap.live_bytes));
        }
        if !part.histograms {
            return;
        }
        let native = Native::of(part, cells);
        let counted = native.buckets.values().fold(native.zero, |sum, n| sum.saturating_add(*n));
        self.data_points += 1;
        self.calls.push(ExponentialHistogramDataPoint {
            attributes,
            start_time_unix_nano: begin.min(self.taken_unix_ns),
            time_unix_nano: self.taken_unix_ns,
            count: counted,
            sum: Some(part.seconds(stats.exclusive)),
            scale: SCHEMA,
            zero_count: native.zero,
            zero_threshold: ZERO,
            positive: buckets(&native),
            min: (stats.count > 0).then(|| part.seconds(stats.min)),
            max: (stats.count > 0).then(|| part.seconds(stats.max)),
            ..ExponentialHistogramDataPoint::default()
        });
    }

    /// Adds the figures of the process as a whole.
    fn process(&mut self, part: &ProcessSeries) {
        let snapshot = &part.snapshot;
        let begin = self.begin_unix_ns;
        self.sum(NumberKind::Overhead, begin, Vec::new(), Number::AsDouble(part.overhead()));
        for (kind, count) in losses(snapshot) {
            self.sum(NumberKind::Losses, begin, vec![text("pfp.loss.kind", kind)], whole(count));
        }
        self.gauge(NumberKind::CellsBusy, Vec::new(), whole(snapshot.losses[Loss::CellsBusy]));
        if let Some(heap) = &snapshot.heap {
            self.gauge(NumberKind::ProcessLiveBytes, Vec::new(), whole(heap.live_bytes));
            self.gauge(NumberKind::ProcessPeakBytes, Vec::new(), whole(heap.peak_bytes));
        }
        let elapsed = part.seconds(snapshot.elapsed_ticks);
        self.gauge(NumberKind::Elapsed, Vec::new(), Number::AsDouble(elapsed));
        let what = vec![
            text("pfp.process.state", snapshot.process.state.word()),
            text("pfp.clock", clock_word(snapshot.clock.kind)),
        ];
        self.gauge(NumberKind::Info, what, Number::AsInt(1));
    }

    /// Removes all metrics so far, and returns them as one message.
    fn take(&mut self) -> ResourceMetrics {
        self.data_points = 0;
        let numbers = std::mem::take(&mut self.numbers).into_iter().zip(&FAMILIES);
        let mut metrics: Vec<Metric> = numbers
            .filter(|(data_points, _)| !data_points.is_empty())
            .map(|(data_points, family)| {
                let data = match family.is_sum {
                    true => Data::Sum(Sum {
                        data_points,
                        aggregation_temporality: CUMULATIVE,
                        is_monotonic: true,
                    }),
                    false => Data::Gauge(Gauge { data_points }),
                };
                metric(family.name, family.unit, family.about, data)
            })
            .collect();
        let data_points = std::mem::take(&mut self.calls);
        if !data_points.is_empty() {
            let about = "Time on a CPU of single calls, nested regions taken out.";
            let data = ExponentialHistogram { data_points, aggregation_temporality: CUMULATIVE };
            let data = Data::ExponentialHistogram(data);
            metrics.push(metric("pfp.call.exclusive", "s", about, data));
        }
        let scope = InstrumentationScope {
            name: "pfp-top".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ..InstrumentationScope::default()
        };
        let scope = ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() };
        ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics: vec![scope],
            ..ResourceMetrics::default()
        }
    }
}

fn metric(name: &str, unit: &str, about: &str, data: Data) -> Metric {
    Metric {
        name: name.into(),
        unit: unit.into(),
        description: about.into(),
        data: Some(data),
        ..Metric::default()
    }
}

/// Prometheus numbers a bucket by its upper end, OpenTelemetry by its lower one.
fn buckets(native: &Native) -> Option<Buckets> {
    let (first, last) = (*native.buckets.keys().next()?, *native.buckets.keys().next_back()?);
    let count = |number| native.buckets.get(&number).copied().unwrap_or(0);
    Some(Buckets { offset: first - 1, bucket_counts: (first..=last).map(count).collect() })
}

fn whole(count: u64) -> Number {
    Number::AsInt(i64::try_from(count).unwrap_or(i64::MAX))
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    let mut attributes = Vec::new();
    if let Some(point) = &labels.point {
        attributes.push(text("pfp.point", point));
    }
    if let Some(elsewhere) = labels.elsewhere {
        attributes.push(attribute(&format!("pfp.{elsewhere}"), Value::BoolValue(true)));
    }
    if let Some((thread, lane)) = &labels.thread {
        attributes.push(text("thread.name", thread));
        attributes.extend(lane.map(|lane| attribute("pfp.lane", Value::IntValue(lane.into()))));
    }
    if let Some((reason, name)) = &labels.wait {
        attributes.extend([text("pfp.wait.reason", reason), text("pfp.wait.name", name)]);
    }
    attributes
}

fn resource(process: &Process) -> Resource {
    let name = process.exe.rsplit('/').next().unwrap_or_default();
    let attributes = vec![
        text("service.name", &process.name),
        text("service.instance.id", &process.segment_id),
        attribute("process.pid", Value::IntValue(process.pid.into())),
        text("process.executable.name", name),
        text("process.executable.path", &process.exe),
        text("host.name", &process.host),
    ];
    Resource { attributes, ..Resource::default() }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.into(), value, ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::convert::Infallible;

    use super::*;
    use crate::openmetrics;
    use pfp_model::Model;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;
    use pfp_read::waits::{WaitTotal, WaitsReport};

    fn sent(subject: &Subject<'_>) -> Vec<ExportMetricsServiceRequest> {
        let mut all = Vec::new();
        let done: Result<(), Infallible> = requests(std::slice::from_ref(subject), |request| {
            all.push(request.clone());
            Ok(())
        });
        let Ok(()) = done;
        all
    }

    fn metrics(request: &ExportMetricsServiceRequest) -> impl Iterator<Item = &Metric> {
        let scopes = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
        scopes.flat_map(|scope| &scope.metrics)
    }

    /// The name of a metric in Prometheus, by OpenTelemetry's rules for conversion.
    fn in_prometheus(metric: &Metric) -> String {
        let mut name = metric.name.replace('.', "_");
        if metric.unit == "s" {
            name += "_seconds";
        }
        if matches!(metric.data, Some(Data::Sum(_))) {
            name += "_total";
        }
        name
    }

    #[test]
    fn pushed_metrics_are_the_served_ones() {
        let mut model = Model::default();
        let mut source = Synthetic::new();
        // A load is known from the second snapshot on.
        model.fold(source.poll().unwrap());
        let (reason, name) = ("lock".to_owned(), "JOBS".to_owned());
        let waits = vec![WaitTotal { point: Some(1), reason, name, ns: 7 }];
        let totals = Some(WaitTotals { since_unix_ns: 1, seconds: 9.0, waits });
        let waits = WaitsReport { totals, ..WaitsReport::default() };
        source.snapshot_mut().waits = Some(Arc::new(waits));
        model.fold(source.poll().unwrap());
        let subject = Subject::new(&model, |_| true, false).unwrap();
        let [request] = &sent(&subject)[..] else { panic!("it is small") };
        let pushed: BTreeSet<String> = metrics(request).map(in_prometheus).collect();
        let mut text = Vec::new();
        openmetrics::write(&[&subject], &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let served: BTreeSet<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .map(|(name, kind)| match kind {
                "counter" => format!("{name}_total"),
                "info" => format!("{name}_info"),
                _ => name.to_owned(),
            })
            .collect();
        assert_eq!(pushed, served);
    }

    #[test]
    fn many_points_are_several_requests_and_each_figure_is_in_one() {
        let mut source = Synthetic::new();
        let snapshot = source.snapshot_mut();
        let point = snapshot.points[1].clone();
        for id in snapshot.points.len() as u32..4_000 {
            let name = format!("point {id}");
            snapshot.points.push(pfp_read::snapshot::Point { id, name, ..point.clone() });
        }
        let model = Model::of(source.poll().unwrap());
        let subject = Subject::new(&model, |_| true, false).unwrap();
        let all = sent(&subject);
        assert!(all.len() > 2, "{}", all.len());
        let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
        for request in &all {
            let mut of_request = 0;
            for metric in metrics(request) {
                let attributes: Vec<&Vec<KeyValue>> = match metric.data.as_ref().unwrap() {
                    Data::Sum(sum) => sum.data_points.iter().map(|p| &p.attributes).collect(),
                    Data::Gauge(gauge) => gauge.data_points.iter().map(|p| &p.attributes).collect(),
                    Data::ExponentialHistogram(histogram) => {
                        histogram.data_points.iter().map(|p| &p.attributes).collect()
                    }
                    other => panic!("{other:?}"),
                };
                of_request += attributes.len();
                for attributes in attributes {
                    let key = (metric.name.clone(), format!("{attributes:?}"));
                    *seen.entry(key).or_default() += 1;
                }
            }
            assert!(of_request < AT_ONCE + 10, "{of_request}");
        }
        assert!(seen.values().all(|count| *count == 1));
        let of = |name: &str| seen.keys().filter(|(metric, _)| metric == name).count();
        assert_eq!((of("pfp.calls"), of("pfp.enabled")), (4_000, 4_000));
        assert_eq!((of("pfp.call.exclusive"), of("pfp.losses")), (4_000, 9));
    }

    #[test]
    fn a_bucket_has_both_its_ends() {
        let model = Model::of(Synthetic::new().poll().unwrap());
        let subject = Subject::new(&model, |_| true, false).unwrap();
        let part = ProcessSeries::of(&subject);
        part.each(|_, _, cells| {
            let native = Native::of(&part, cells);
            let Some(metrics) = buckets(&native) else { return Ok(()) };
            let base = 2_f64.powf(2_f64.powi(-SCHEMA));
            for cell in cells {
                for bucket in &cell.histogram {
                    let middle = part.seconds(pfp_model::histogram::middle(bucket));
                    let index = (0..metrics.bucket_counts.len())
                        .find(|at| {
                            middle <= base.powi(metrics.offset + *at as i32 + 1) * (1.0 + 1e-12)
                        })
                        .expect("it has a bucket");
                    assert!(middle > base.powi(metrics.offset + index as i32) * (1.0 - 1e-12));
                    assert!(metrics.bucket_counts[index] >= bucket.count);
                }
            }
            Ok::<(), Infallible>(())
        })
        .unwrap();
    }
}

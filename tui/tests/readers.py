"""Reads an export with a reader that is not pfp's own, and prints as JSON what it read.

    readers.py FORMAT FILE [SCHEMA]

The test compares that with the snapshot that was exported. An exception means that
the reader refuses the file.
"""

import csv
import io
import json
import sys
import xml.etree.ElementTree


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, strict=True))


def read_openmetrics(path):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    with open(path, newline="", encoding="utf-8") as file:
        families = list(text_string_to_metric_families(file.read()))
    return {
        "types": {family.name: family.type for family in families},
        "samples": [
            {"name": sample.name, "labels": sample.labels, "value": float(sample.value)}
            for family in families
            for sample in family.samples
            if sample.value != float("inf")
        ],
    }


def read_hlog(path):
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader

    reader = HistogramLogReader(path, HdrHistogram(1, 3600 * 10**9, 3))
    histograms = {}
    while True:
        histogram = reader.get_next_interval_histogram()
        if histogram is None:
            return histograms
        values = [
            (item.value_iterated_to, item.count_added_in_this_iter_step)
            for item in histogram.get_recorded_iterator()
        ]
        quantiles = [50, 90, 99, 99.9, 100]
        histograms[histogram.get_tag()] = {
            "calls": histogram.get_total_count(),
            "min_ns": histogram.get_min_value(),
            "max_ns": histogram.get_max_value(),
            "mean_ns": histogram.get_mean_value(),
            "start_ms": histogram.get_start_time_stamp(),
            "end_ms": histogram.get_end_time_stamp(),
            "quantiles_ns": [histogram.get_value_at_percentile(q) for q in quantiles],
            "values_ns": values,
        }


def read_speedscope(path, schema):
    import jsonschema

    with open(path, encoding="utf-8") as file, open(schema, encoding="utf-8") as rules:
        profiles = json.load(file)
        jsonschema.validate(profiles, json.load(rules))
    return profiles


def read_chrome(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def unknown_fields(message):
    from google.protobuf.unknown_fields import UnknownFieldSet

    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            several = hasattr(value, "add")
            count += sum(map(unknown_fields, value if several else [value]))
    return count


def read_perfetto(path):
    """Slices and instants as a trace processor builds them: from the published messages, in the
    order of time, each end closing the last begin on its track."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    trace = Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    tracks, names, categories, annotations, places = {}, {}, {}, {}, {}
    events, clocks = [], []
    for packet in trace.packet:
        if packet.HasField("clock_snapshot"):
            clocks = [(c.clock_id, c.timestamp) for c in packet.clock_snapshot.clocks]
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert descriptor.uuid not in tracks
            tracks[descriptor.uuid] = descriptor
        new = packet.interned_data
        names.update((item.iid, item.name) for item in new.event_names)
        categories.update((item.iid, item.name) for item in new.event_categories)
        annotations.update((item.iid, item.name) for item in new.debug_annotation_names)
        places.update((item.iid, (item.file_name, item.line_number)) for item in new.source_locations)
        if packet.HasField("track_event"):
            event = packet.track_event
            values = {annotations[a.name_iid]: a.uint_value for a in event.debug_annotations}
            events.append(
                {
                    "at": packet.timestamp,
                    "track": event.track_uuid,
                    "type": event.type,
                    "name": names[event.name_iid] if event.name_iid else None,
                    "category": [categories[iid] for iid in event.category_iids],
                    "annotations": values,
                    "place": places.get(event.source_location_iid),
                }
            )
    events.sort(key=lambda event: event["at"])

    def name_of(uuid):
        track = tracks[uuid]
        return track.thread.thread_name or track.process.process_name or track.name

    open_on, slices, instants = {}, [], []
    for event in events:
        track = event.pop("track")
        kind = event.pop("type")
        if kind == TrackEvent.TYPE_SLICE_BEGIN:
            open_on.setdefault(track, []).append(event)
        elif kind == TrackEvent.TYPE_SLICE_END:
            begin = open_on[track].pop()
            slices.append({**begin, "end": event["at"], "track": name_of(track)})
        elif kind == TrackEvent.TYPE_INSTANT:
            instants.append({**event, "track": name_of(track)})
        else:
            raise ValueError(f"type {kind}")
    assert not any(open_on.values()), "a slice never ends"
    return {
        "unknown_fields": sum(map(unknown_fields, trace.packet)),
        "clocks": clocks,
        "threads": sorted(track.thread.tid for track in tracks.values() if track.HasField("thread")),
        "slices": slices,
        "instants": instants,
    }


def read_svg(path):
    root = xml.etree.ElementTree.parse(path).getroot()
    plain = [element.tag.rpartition("}")[2] for element in root.iter()]
    return {
        "tags": {tag: plain.count(tag) for tag in set(plain)},
        "titles": [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")],
        "texts": [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")],
    }


def read_otlp(*paths):
    """Decodes requests to a collector with the published messages: a list of figures for each."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    def plain(attributes):
        found = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}
        assert len(found) == len(attributes), "an attribute twice"
        return found

    requests = []
    for path in paths:
        request = ExportMetricsServiceRequest()
        with open(path, "rb") as file:
            request.ParseFromString(file.read())
        assert unknown_fields(request) == 0
        figures = []
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    data = getattr(metric, kind)
                    for point in data.data_points:
                        figure = {
                            "resource": plain(resource.resource.attributes),
                            "scope": [scope.scope.name, scope.scope.version],
                            "name": metric.name,
                            "unit": metric.unit,
                            "kind": kind,
                            "temporality": getattr(data, "aggregation_temporality", None),
                            "monotonic": getattr(data, "is_monotonic", None),
                            "attributes": plain(point.attributes),
                            "start": point.start_time_unix_nano,
                            "time": point.time_unix_nano,
                        }
                        if kind == "exponential_histogram":
                            for name in ["count", "sum", "scale", "zero_count", "min", "max"]:
                                figure[name] = getattr(point, name)
                            figure["offset"] = point.positive.offset
                            figure["buckets"] = list(point.positive.bucket_counts)
                        else:
                            figure["value"] = getattr(point, point.WhichOneof("value"))
                        figures.append(figure)
        requests.append(figures)
    return requests


def read_schema(path, schema):
    """Validates JSON, either one document or one per line, by a schema. Then it mutilates each
    object: it removes every field once, and adds one that is not in the schema. Returns the
    fields that may be missing, and the number of mutilations."""
    import jsonschema

    with open(schema, encoding="utf-8") as file:
        rules = json.load(file)
    jsonschema.Draft202012Validator.check_schema(rules)
    validator = jsonschema.Draft202012Validator(rules)
    with open(path, encoding="utf-8") as file:
        documents = [json.loads(line) for line in file]
    tried, optional, loose = 0, set(), set()

    def mutilate(document, value, place):
        nonlocal tried
        if isinstance(value, list):
            # The first few items of a kind represent all of them.
            for item in value[:3]:
                mutilate(document, item, place + "[]")
        if not isinstance(value, dict):
            return
        for key in list(value):
            order = list(value.items())
            del value[key]
            tried += 1
            if validator.is_valid(document):
                optional.add(f"{place}.{key}")
            value.clear()
            value.update(order)
            mutilate(document, value[key], f"{place}.{key}")
        value["of_tomorrow"] = 1
        tried += 1
        if validator.is_valid(document):
            loose.add(place)
        del value["of_tomorrow"]

    for document in documents:
        validator.validate(document)
        # A copy with shortened lists covers just as much, and is much faster to check.
        short = shortened(document)
        validator.validate(short)
        mutilate(short, short, "")
    return {"documents": len(documents), "tried": tried, "optional": sorted(optional), "loose": sorted(loose)}


def shortened(value):
    if isinstance(value, list):
        return [shortened(item) for item in value[:3]]
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    return value


READERS = {
    "csv": read_csv,
    "openmetrics": read_openmetrics,
    "hlog": read_hlog,
    "schema": read_schema,
    "speedscope": read_speedscope,
    "chrome": read_chrome,
    "perfetto": read_perfetto,
    "otlp": read_otlp,
    "svg-trace": read_svg,
    "svg-histogram": read_svg,
}

if __name__ == "__main__":
    json.dump(READERS[sys.argv[1]](*sys.argv[2:]), sys.stdout)

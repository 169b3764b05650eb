"""Sends metrics, and the spans of batches and traced deliveries, with OTLP over HTTP.

Spans are built from telemetry records, and their ids are derived from what the spans describe. So if the outcome of a
delivery is reported twice, both reports have the same spans.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from eventbridge.event.ids import batch_time, delivery_id_text
from eventbridge.model.stat import Family, Sample
from eventbridge.telemetry.protocol import CheckEnded, DeliverySettled, PushEnded, StageEnded
from eventbridge.version import __version__

_SCOPE = InstrumentationScope("eventbridge", __version__)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENDED = ("delivered", "dead_lettered")

#: The maximum number of milliseconds that an ending process waits for a collector that does not respond.
FLUSH_MS = 3_000


class OpenTelemetry:
    """Exports spans to a collector. It traces the share `ratio` of the deliveries whose event has no trace."""

    def __init__(self, ratio: float, exporter: SpanExporter | None = None) -> None:
        """Use `exporter` or, by default, the exporter that the OTEL_* variables configure."""
        self._ratio = ratio
        self._resource = service()
        self._processor = BatchSpanProcessor(exporter or OTLPSpanExporter())

    def stage_ended(self, ended: StageEnded) -> None:
        """Export the span of a stage and, after a successful `commit`, the span of the batch."""
        if ended.batch_id is None:
            return
        trace, root = batch_trace(ended.batch_id), span_id(ended.batch_id)
        status = Status(StatusCode.ERROR, ended.error) if ended.error else Status()
        attributes = {"eventbridge.batch_id": ended.batch_id, "eventbridge.runner": ended.runner}
        own = span_id(ended.batch_id, ended.stage, ended.started_at.isoformat())
        parent = TraceParent(trace, root, sampled=True)
        self._export(ended.stage, parent, own, (ended.started_at, ended.ended_at), attributes, status=status)
        if ended.stage == "commit" and not ended.error:
            top = TraceParent(trace, 0, sampled=True)
            self._export("batch", top, root, (batch_time(ended.batch_id), ended.ended_at), attributes)

    def push_ended(self, ended: PushEnded) -> None:
        """Do nothing, because the span of the `push` stage covers it."""

    def check_ended(self, ended: CheckEnded) -> None:
        """Do nothing, because the watcher polls several times a second."""

    def traces(self, delivery_id: bytes, traceparent: str | None) -> bool:
        """Return whether a delivery is traced. The publisher of the event decides this; if the publisher has not
        decided, the ratio does."""
        return trace_of(delivery_id, traceparent, self._ratio).sampled

    def delivery_settled(self, settled: DeliverySettled) -> None:
        """Export the spans of a delivery: one for each attempt and, with the first attempt, `landed` and `routed`.

        If the delivery has ended, also export its own span, which begins when its event was published.
        """
        trace = trace_of(settled.delivery_id, settled.traceparent, self._ratio)
        name = delivery_id_text(settled.delivery_id)
        below = TraceParent(trace.trace_id, span_id(name), sampled=True)
        attributes = {
            "eventbridge.delivery_id": name,
            "eventbridge.batch_id": settled.batch_id,
            "eventbridge.bus": settled.bus,
            "eventbridge.rule": settled.rule,
            "eventbridge.target": settled.target,
            "cloudevents.event_id": settled.event_id,
            "cloudevents.event_source": settled.source,
        }
        first = min((each.started_at for each in settled.attempts), default=settled.settled_at)
        if not settled.attempts or min(each.number for each in settled.attempts) <= 1:
            times = (settled.published_at, settled.arrived_at)
            self._export("landed", below, span_id(name, "landed"), times, attributes)
            if first is not None:
                self._export("routed", below, span_id(name, "routed"), (settled.arrived_at, first), attributes)
        for each in settled.attempts:
            status = Status() if each.outcome == "delivered" else Status(StatusCode.ERROR, each.error or each.outcome)
            result = {"http.response.status_code": each.code, "eventbridge.attempt": each.number}
            own = span_id(name, settled.batch_id, each.number)
            self._export(
                "attempt",
                below,
                own,
                (each.started_at, each.started_at + each.duration),
                attributes | result,
                status=status,
            )
        if settled.status in _ENDED:
            dead = settled.status == "dead_lettered"
            status = Status(StatusCode.ERROR, settled.reason) if dead else Status()
            end = settled.settled_at or first or settled.arrived_at
            ended = "dead letter" if dead else "delivered"
            ending = attributes | {"eventbridge.status": settled.status, "eventbridge.reason": settled.reason}
            link = self._context(batch_trace(settled.batch_id), span_id(settled.batch_id))
            times = (settled.published_at, end)
            self._export(ended, trace, span_id(name), times, ending, status=status, link=link)

    def close(self) -> None:
        """Send the queued spans. This takes at most some seconds."""
        self._processor.force_flush(FLUSH_MS)
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def _export(
        self,
        name: str,
        parent: TraceParent,
        own: int,
        times: tuple[datetime, datetime],
        attributes: Mapping[str, Any],
        *,
        status: Status | None = None,
        link: SpanContext | None = None,
    ) -> None:
        start, end = times
        self._processor.on_end(
            ReadableSpan(
                name=name,
                context=self._context(parent.trace_id, own),
                parent=self._context(parent.trace_id, parent.span_id) if parent.span_id else None,
                resource=self._resource,
                attributes={key: value for key, value in attributes.items() if value is not None},
                links=() if link is None else (Link(link),),
                kind=SpanKind.INTERNAL,
                status=status or Status(),
                start_time=_nanoseconds(start),
                end_time=_nanoseconds(max(start, end)),
                instrumentation_scope=_SCOPE,
            )
        )

    @staticmethod
    def _context(trace_id: int, own: int) -> SpanContext:
        return SpanContext(trace_id, own, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1_000


class MetricsSender:
    """Sends families of metrics to the collector that the OTEL_* variables name. Sums and histograms are cumulative."""

    def __init__(self, exporter: MetricExporter | None = None) -> None:
        self._exporter = exporter or OTLPMetricExporter()
        self._resource = service()

    def send(self, families: Sequence[Family]) -> bool:
        """Send families, and return whether the collector accepted them."""
        now = time.time_ns()
        scope = InstrumentationScope("eventbridge", __version__)
        metrics = [_metric(family, now) for family in families if family.samples]
        data = MetricsData([ResourceMetrics(self._resource, [ScopeMetrics(scope, metrics, "")], "")])
        return self._exporter.export(data) is MetricExportResult.SUCCESS

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()


def _metric(family: Family, now: int) -> Metric:
    cumulative = AggregationTemporality.CUMULATIVE
    if family.kind == "histogram":
        points = [_histogram(family, sample, now) for sample in family.samples]
        return Metric(family.name, family.help, "s", Histogram(points, cumulative))
    numbers = [NumberDataPoint(_labels(family, sample), 0, now, sample.value) for sample in family.samples]
    if family.kind == "counter":
        return Metric(family.name.removesuffix("_total"), family.help, "", Sum(numbers, cumulative, is_monotonic=True))
    return Metric(family.name, family.help, "", Gauge(numbers))


def _histogram(family: Family, sample: Sample, now: int) -> HistogramDataPoint:
    counts = [count for _, count in sample.buckets]
    return HistogramDataPoint(
        attributes=_labels(family, sample),
        start_time_unix_nano=0,
        time_unix_nano=now,
        count=counts[-1],
        sum=sample.value,
        bucket_counts=[after - before for before, after in pairwise([0, *counts])],
        explicit_bounds=[bound for bound, _ in sample.buckets[:-1]],
        min=math.inf,
        max=-math.inf,
    )


def _labels(family: Family, sample: Sample) -> dict[str, str]:
    return dict(zip(family.labels, sample.labels, strict=True))


class TraceParent(NamedTuple):
    """The trace of a delivery, its parent span (0 without one), and whether it is sampled."""

    trace_id: int
    span_id: int
    sampled: bool


def batch_trace(batch_id: str) -> int:
    """Return the id of a batch's trace."""
    return UUID(batch_id).int


def span_id(*words: object) -> int:
    """Return the id of a span, which is derived from `words` and never 0."""
    text = "\0".join(map(str, words)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") or 1


def trace_of(delivery_id: bytes, traceparent: str | None, ratio: float) -> TraceParent:
    """Return the trace of a delivery: that of its event, sampled as the publisher decided, or else its own trace.

    The id of its own trace is the delivery id, as in the header that the target receives. Of these traces, the share
    `ratio` is sampled. Whether a delivery is sampled depends only on its id.
    """
    if traceparent is not None:
        _, trace, parent, flags = traceparent.split("-")
        return TraceParent(int(trace, 16), int(parent, 16), bool(int(flags, 16) & 1))
    # the top two bits of the lower half are the same in every delivery id
    low = int.from_bytes(delivery_id[8:], "big") & ((1 << 62) - 1)
    return TraceParent(int.from_bytes(delivery_id, "big"), 0, low < ratio * (1 << 62))


def service() -> Resource:
    """Return the resource of all telemetry of this process."""
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {"service.name": "eventbridge"})

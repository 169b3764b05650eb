"""Metrics by OTLP over HTTP: the families of `/metrics`, pushed to a collector."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import pairwise

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
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
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from eventbridge.model.stat import Family, Sample
from eventbridge.telemetry.service import service
from eventbridge.version import __version__


class MetricsSender:
    """Sends families, as cumulative sums and histograms, to the collector that the OTEL_* variables name."""

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

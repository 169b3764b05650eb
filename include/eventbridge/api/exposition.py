"""Metrics in the text format of Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from eventbridge.model.stat import Family


def exposition(families: Sequence[Family], accept: str) -> tuple[bytes, str]:
    """Return families in the format that a scraper accepts, with its content type."""
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return encode(registry), content_type


class _Families(Collector):
    """Gives the families to the library."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield each family in the library's type."""
        return map(_metric, self._families)

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: no other collector is in the registry."""
        return iter(())


def _metric(family: Family) -> Metric:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for sample in family.samples:
            buckets = [("+Inf" if math.isinf(bound) else str(bound), float(count)) for bound, count in sample.buckets]
            histogram.add_metric(sample.labels, buckets, sample.value)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for sample in family.samples:
        metric.add_metric(sample.labels, sample.value)
    return metric

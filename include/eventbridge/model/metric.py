"""Metrics: families of samples, independent of the output format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a family; `labels` are in the family's order. For a histogram, `value` is the sum of all times.

    `buckets`: pairs of an upper bound in seconds, the last one infinite, and how many values are not above it.
    """

    labels: tuple[str, ...]
    value: float
    buckets: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """The samples of one name: a `counter` only grows; the name contains the unit, seconds or bytes."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    samples: tuple[Sample, ...]

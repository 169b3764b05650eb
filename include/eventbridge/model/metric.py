"""Metrics: families of samples, whatever they are written as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a family; `labels` in the order of the family's. Of a histogram `value` is the sum of all times.

    `buckets`: pairs of upper bound in seconds, the last one infinite, and how many are not above it.
    """

    labels: tuple[str, ...]
    value: float
    buckets: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """What has one name: `counter`s only grow; units are in the name, seconds and bytes."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    samples: tuple[Sample, ...]

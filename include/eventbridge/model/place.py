"""Where deliveries lie on their bus: the place of one, the span of many."""

from __future__ import annotations

from typing import NamedTuple

from eventbridge.model.partition import Partition


class Place(NamedTuple):
    """Where a delivery's event lies on its bus: bus order is the order of offsets within a partition."""

    partition: Partition
    offset: int


class Span(NamedTuple):
    """The first and the last offset that a pending row has of a partition."""

    partition: Partition
    first: int
    last: int

"""Positions of deliveries on their bus: the place of one, the span of many."""

from __future__ import annotations

from typing import NamedTuple

from eventbridge.model.partition import Partition


class Place(NamedTuple):
    """The place of a delivery's event on its bus; bus order is the order of offsets within a partition."""

    partition: Partition
    offset: int


class Span(NamedTuple):
    """The first and the last offset of a pending row in a partition."""

    partition: Partition
    first: int
    last: int

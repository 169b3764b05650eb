"""Where deliveries lie on their bus: the place of one, the span of many."""

from __future__ import annotations

from typing import NamedTuple

from eventbridge.model.queue import Queue


class Place(NamedTuple):
    """Where a delivery's event lies on its bus: bus order is the order of offsets within a queue."""

    queue: Queue
    offset: int


class Span(NamedTuple):
    """The first and the last offset that a pending row has of a queue."""

    queue: Queue
    first: int
    last: int

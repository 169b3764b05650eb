"""Renders the payloads of many deliveries into one Arrow array, by the programs of their targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.event.json_document import MAXIMUM_DEPTH
from eventbridge.matching.scan.memory import address_of
from eventbridge.matching.scan.parts import Parts, find_parts
from eventbridge.matching.scan.texts import Texts
from eventbridge.transform.fill import arrival_text
from eventbridge.transform.kernel.operate import ARRIVAL_ROOM, HANDED_BACK, Tables, render_deliveries
from eventbridge.transform.kernel.program import Group, Program, groups_of
from eventbridge.transform.kernel.write import KEYS, WriteBuffers

ROOM: Final = 8 << 20
"""The number of payload bytes that are rendered at a time."""

_MAX_ROOM: Final = 1 << 30  # the offsets of an Arrow binary array have 31 bits
_LEAST_ROOM: Final = 1 << 16
_SLACK: Final = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Deliveries(NamedTuple):
    """Deliveries ordered by target: the number of the event, the number of the target and the 16-byte id of each."""

    events: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]
    ids: npt.NDArray[np.uint8]


class Payloads(NamedTuple):
    """The payloads of deliveries `first` to `last` (excluded).

    `status` is RENDERED, HANDED_BACK or the number of the failure, counted from 1, for each delivery. The payload is
    empty unless it is RENDERED.
    """

    first: int
    last: int
    payload: pa.Array
    status: npt.NDArray[np.int32]


@dataclass(frozen=True)
class Events:
    """The texts of events, and when each arrived, in microseconds since 1970 in UTC."""

    texts: Texts
    arrived_at: npt.NDArray[np.int64]


class Renderers:
    """The compiled programs of all targets of a rule set, without state between calls."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._groups, self.failures = groups_of(programs)

    def render(self, events: Events, deliveries: Deliveries) -> Iterator[Payloads]:
        """Yield the payloads of all deliveries in their order, about `ROOM` bytes at a time."""
        for group in self._groups:
            first, last = np.searchsorted(deliveries.targets, [group.first, group.last]).tolist()
            if first < last:
                yield from _render_group(group, events, deliveries, first, last)


def _render_group(group: Group, events: Events, deliveries: Deliveries, first: int, last: int) -> Iterator[Payloads]:
    targets = deliveries.targets[first:last] - group.first
    wanted = np.zeros(len(events.texts.start), np.bool_)
    wanted[deliveries.events[first:last][group.has_paths[targets]]] = True
    row_of_event = np.cumsum(wanted, dtype=np.int64) - 1
    parts = find_parts(events.texts, np.flatnonzero(wanted), group.paths)
    runtime = _RenderBuffers(group, events, deliveries, parts, row_of_event)
    size = int(events.texts.end[-1] - events.texts.start[0])
    room = min(
        ROOM, _LEAST_ROOM + 4 * size
    )  # for a few payloads, mapping ROOM bytes of memory would take longer than rendering
    while first < last:
        payloads = runtime.run(first, last, room)
        if payloads.last == first and room < _MAX_ROOM:
            room *= 4  # not even one payload fits
            continue
        if payloads.last == first:
            payloads = Payloads(first, first + 1, pa.array([b""], pa.binary()), np.array([HANDED_BACK], np.int32))
        yield payloads
        first, room = payloads.last, ROOM


class _RenderBuffers:
    """The buffers whose addresses compiled code uses, which this object keeps alive."""

    def __init__(
        self, group: Group, events: Events, deliveries: Deliveries, parts: Parts, rows: npt.NDArray[np.int64]
    ) -> None:
        texts = events.texts
        longest = int((texts.end - texts.start).max(initial=0)) + 2 * _SLACK
        arrivals = _arrivals(events.arrived_at) if group.has_arrival else np.zeros(0, np.uint8)
        self._deliveries = deliveries
        self._alive = (
            np.empty(longest, np.uint8), np.empty(longest, np.uint8), np.empty(KEYS, np.uint64),
            np.empty(MAXIMUM_DEPTH + 1, np.uint64), arrivals, rows, parts, group, texts
        )  # fmt: skip
        self._writing = WriteBuffers(*[address_of(array) for array in self._alive[:4]])
        self._tables = Tables(
            address_of(group.operations), address_of(group.first_operation), address_of(group.texts), group.first,
            address_of(texts.buffer), address_of(texts.start), address_of(texts.end), address_of(rows),
            address_of(parts.kind), address_of(parts.position), address_of(parts.length), group.paths.width,
            address_of(arrivals), address_of(deliveries.events), address_of(deliveries.targets),
            address_of(deliveries.ids)
        )  # fmt: skip

    def run(self, first: int, last: int, room: int) -> Payloads:
        """Render the deliveries from `first` to `last` (excluded), or as many of them as fit into `room` bytes."""
        count = min(last - first, max(1, room // 16))
        out = np.empty(room + _SLACK, np.uint8)
        offsets, status = np.zeros(count + 1, np.int32), np.zeros(count, np.int32)
        done = render_deliveries(
            self._tables, self._writing, first, first + count, address_of(out), room, address_of(offsets),
            address_of(status)
        )  # fmt: skip
        offsets, status = offsets[: done - first + 1], status[: done - first]
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
        return Payloads(first, done, pa.Array.from_buffers(pa.binary(), done - first, buffers), status)


def _arrivals(times: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the text of each time, padded to `ARRIVAL_ROOM` bytes."""
    distinct, which = np.unique(times, return_inverse=True)
    arrivals = [arrival_text(_EPOCH + timedelta(microseconds=each)).encode() for each in distinct.tolist()]
    texts = [each.ljust(ARRIVAL_ROOM) for each in arrivals]
    table = np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), ARRIVAL_ROOM)
    return np.ascontiguousarray(table[which])

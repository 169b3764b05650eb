"""Builds the rows of a delivery file from columns, several thousand at a time, without a Python object for each row."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import TransformFailed
from eventbridge.event.ids import delivery_id_text
from eventbridge.event.json_document import JsonValue
from eventbridge.routing.events import SliceEvents
from eventbridge.routing.headers import with_headers, with_replay_id
from eventbridge.routing.pieces import NO_WAIT, order_keys, shards_of
from eventbridge.routing.program import Route, RouteProgram, WaitingTimes
from eventbridge.store.schemas import DELIVERY
from eventbridge.transform import Rendered, Scope
from eventbridge.transform.kernel.operate import HANDED_BACK
from eventbridge.transform.kernel.render import Deliveries, Payloads

#: The columns that are copied from the event row by row. `topic` and `broker` are constant in most slices.
_TAKEN: Final = ("partition_id", "offset", "source", "event_id", "published_at", "arrived_at")
_SHARED: Final = ("topic", "broker")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NOT_BEFORE: Final = DELIVERY.field("not_before").type


@dataclass(frozen=True)
class SliceOrigin:
    """The values that all deliveries of a slice share."""

    bus: str
    replay_id: str
    event_file: str


@dataclass(frozen=True)
class Block:
    """Rows of the DELIVERY schema with dictionary-encoded strings, and per row the payload size, the shard, and whether
    it failed.

    `waits` is the time before which a row must not be sent, in microseconds since 1970, or NO_WAIT. `handed_back` is
    the number of deliveries that compiled code left to their renderers.
    """

    table: pa.Table
    sizes: npt.NDArray[np.int64]
    shards: npt.NDArray[np.int16]
    failed: npt.NDArray[np.bool_]
    waits: npt.NDArray[np.int64]
    handed_back: int


def block_of(
    program: RouteProgram, events: SliceEvents, deliveries: Deliveries, payloads: Payloads, origin: SliceOrigin
) -> Block:
    """Return the rows of rendered deliveries, after rendering those that compiled code left to their renderers."""
    span = slice(payloads.first, payloads.last)
    part = Deliveries(deliveries.events[span], deliveries.targets[span], deliveries.ids[span])
    made = _RuleOutputs(program, events, part, payloads, origin)
    columns = _columns(program, events, part, origin) | made.columns()
    arrays = [columns[field.name] for field in DELIVERY]
    schema = pa.schema([field.with_type(array.type) for field, array in zip(DELIVERY, arrays, strict=True)])
    sizes: npt.NDArray[np.int64] = pc.binary_length(columns["payload"]).fill_null(0).to_numpy().astype(np.int64)
    shards, failed = shards_of(columns["order_key"]), made.failures.is_set
    return Block(pa.Table.from_arrays(arrays, schema=schema), sizes, shards, failed, made.waits, made.handed_back)


def outputs_of(
    program: RouteProgram, events: SliceEvents, deliveries: Deliveries, payloads: Payloads, origin: SliceOrigin
) -> dict[str, pa.Array]:
    """Return the columns of DELIVERY that transforms determine, for rendered deliveries."""
    return _RuleOutputs(program, events, deliveries, payloads, origin).columns()


def runs_of(targets: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the start and length of each run of equal values in a sorted vector."""
    starts = np.flatnonzero(np.concatenate((np.ones(min(len(targets), 1), np.bool_), targets[1:] != targets[:-1])))
    return starts, np.diff(np.append(starts, len(targets)))


def _columns(
    program: RouteProgram, events: SliceEvents, deliveries: Deliveries, origin: SliceOrigin
) -> dict[str, pa.Array]:
    count = len(deliveries.events)
    starts, counts = runs_of(deliveries.targets)
    routes = [program.routes[target] for target in deliveries.targets[starts].tolist()]
    shared = {name: events.only(name) for name in _SHARED}
    several = [name for name, only in shared.items() if only is None]
    taken = events.columns.select([*_TAKEN, *several]).take(pa.array(deliveries.events))
    ids = pa.py_buffer(np.ascontiguousarray(deliveries.ids))
    columns = {name: taken[name] for name in taken.column_names}
    columns |= {name: _repeated([only], [count]) for name, only in shared.items() if only is not None}
    return columns | {
        "delivery_id": pa.Array.from_buffers(pa.binary(16), count, [None, ids]),
        "rule": _repeated([route.rule.name for route in routes], counts),
        "target": _repeated([route.target.name for route in routes], counts),
        "rule_version": _repeated([route.rule.version for route in routes], counts),
        "bus": _repeated([origin.bus], [count]),
        "event_file": _repeated([origin.event_file], [count]),
        "event_row": pa.array(events.rows[deliveries.events]),
        "order_key": order_keys([route.target for route in routes], counts, events, deliveries.events),
    }


def _repeated(texts: Sequence[str], counts: Sequence[int] | npt.NDArray[np.int64]) -> pa.Array:
    codes = np.repeat(np.arange(len(texts), dtype=np.int32), counts)
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(texts, pa.string()))


class _RuleOutputs:
    """The outputs of the rules for a block: payloads, media types, additional headers, failures and waiting times."""

    def __init__(
        self,
        program: RouteProgram,
        events: SliceEvents,
        deliveries: Deliveries,
        payloads: Payloads,
        origin: SliceOrigin,
    ) -> None:
        count = len(deliveries.events)
        self._program, self._events, self._deliveries, self._origin = program, events, deliveries, origin
        self.failures, self._headers, self._media_types = _Texts(count), _Texts(count), _Texts(count)
        starts, counts = runs_of(deliveries.targets)
        for start, length in zip(starts.tolist(), counts.tolist(), strict=True):
            media_type = program.routes[deliveries.targets[start]].program.content_type
            self._media_types.put(slice(start, start + length), media_type)
        self._payload = payloads.payload
        self.handed_back = 0
        if payloads.status.any():
            self._finish(payloads.status)
        self.waits = np.full(count, NO_WAIT, np.int64)
        for start, length in zip(starts.tolist(), counts.tolist(), strict=True):
            waiting = program.routes[deliveries.targets[start]].waiting
            if waiting is not None:
                self._wait(waiting, range(start, start + length))

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns that transforms determine."""
        replay_id = self._origin.replay_id
        self._add_trace_headers()
        headers = self._headers.map(partial(with_replay_id, replay_id=replay_id)) if replay_id else self._headers
        return {
            "payload": self._payload,
            "content_type": self._media_types.array(),
            "headers": headers.array(),
            "failure": self.failures.array(),
            "not_before": self._times(),
        }

    def _add_trace_headers(self) -> None:
        traces = self._events.traces
        if not traces:
            return
        before = self._headers.array().to_pylist()
        for index, number in enumerate(self._deliveries.events.tolist()):
            if number in traces:
                self._headers.put(index, with_headers(before[index], traces[number]))

    def _times(self) -> pa.Array:
        if not self.waits.any():
            return pa.nulls(len(self.waits), _NOT_BEFORE)
        return pa.array(self.waits, pa.int64(), mask=self.waits == NO_WAIT).cast(_NOT_BEFORE)

    def _wait(self, waiting: WaitingTimes, indices: range) -> None:
        """Set the waiting times of one target's deliveries. An invalid time counts as a failed transform."""
        failed = []
        for index in indices:
            number = int(self._deliveries.events[index])
            try:
                first = waiting.not_before(self._arrived_at(number), partial(self._document, number))
            except TransformFailed as error:
                if not self.failures.is_set[index]:
                    self.failures.put(index, str(error))
                    failed.append(index)
                continue
            if first is not None:
                self.waits[index] = (first - _EPOCH) // _MICROSECOND
        if failed:
            rows = np.arange(len(self.waits))
            self._payload = self._payload.take(pa.array(rows, mask=np.isin(rows, failed)))
            self._media_types.put(np.isin(rows, failed), None)

    def _arrived_at(self, number: int) -> datetime:
        return _EPOCH + timedelta(microseconds=int(self._events.arrived_at[number]))

    def _document(self, number: int) -> JsonValue:
        return self._events.parse(number).document

    def _finish(self, status: npt.NDArray[np.int32]) -> None:
        for failure in np.unique(status[status > 0]).tolist():
            self.failures.put(status == failure, self._program.renderers.failures[failure - 1])
        handed_back = np.flatnonzero(status == HANDED_BACK)
        self.handed_back = len(handed_back)
        also = [self._render(index) for index in handed_back.tolist()]
        indices = np.arange(len(status))
        indices[handed_back] = np.arange(len(also)) + len(status)
        self._media_types.put(self.failures.is_set, None)
        both = pa.concat_arrays([self._payload, pa.array(also, pa.binary())])
        self._payload = both.take(pa.array(indices, mask=self.failures.is_set))

    def _render(self, index: int) -> bytes | None:
        """Return the payload of one delivery from its renderer; None if the transform fails."""
        route = self._program.routes[self._deliveries.targets[index]]
        try:
            payload, media_type, headers = self._render_event(route, index)
        except TransformFailed as error:
            self.failures.put(index, str(error))
            return None
        self._media_types.put(index, media_type)
        if headers:
            self._headers.put(index, json.dumps(dict(headers)))
        return payload

    def _render_event(self, route: Route, index: int) -> Rendered:
        number = int(self._deliveries.events[index])
        name = delivery_id_text(self._deliveries.ids[index].tobytes())
        scope = Scope(route.rule.name, self._origin.bus, route.target.name, name, self._arrived_at(number))
        return route.renderer.render(self._events.parse(number), scope)


class _Texts:
    """A column of mostly repeated strings; rows that were never set are null."""

    def __init__(self, count: int) -> None:
        self._codes = np.full(count, -1, np.int32)
        self._texts: dict[str, int] = {}

    def put(self, where: int | slice | npt.NDArray[np.bool_], text: str | None) -> None:
        """Set the rows at `where`."""
        self._codes[where] = -1 if text is None else self._texts.setdefault(text, len(self._texts))

    @property
    def is_set(self) -> npt.NDArray[np.bool_]:
        """Return which rows are not null."""
        given: npt.NDArray[np.bool_] = self._codes >= 0
        return given

    def map(self, change: Callable[[str | None], str | None]) -> _Texts:
        """Return the column after applying `change` to every string and to null."""
        made = _Texts(len(self._codes))
        for text, code in [(None, -1), *self._texts.items()]:
            made.put(self._codes == code, change(text))
        return made

    def array(self) -> pa.Array:
        """Return the column, dictionary-encoded even if all rows are null, because the blocks of a file must all have
        the same types."""
        codes = pa.array(self._codes, mask=~self.is_set)
        return pa.DictionaryArray.from_arrays(codes, pa.array(list(self._texts), pa.string()))

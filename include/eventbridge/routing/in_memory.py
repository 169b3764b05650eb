"""Routes a few events in memory, with the same engine as slices but without files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from eventbridge.matching.scan.memory import PADDING
from eventbridge.matching.scan.texts import Texts
from eventbridge.model.partition import FreshEvent
from eventbridge.routing.block import SliceOrigin, outputs_of
from eventbridge.routing.events import SliceEvents, match_rows
from eventbridge.routing.headers import has_traceparent
from eventbridge.routing.program import Route, RouteProgram
from eventbridge.routing.slice import deliveries_of
from eventbridge.store.schemas import BUFFER
from eventbridge.transform.kernel.render import Deliveries, Events, Payloads

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DeliveryRow(NamedTuple):
    """The columns of the DELIVERY schema that a push needs, as Python values.

    `published_at` is in microseconds since 1970.
    """

    delivery_id: bytes
    arrived_at: datetime
    payload: bytes | None
    content_type: str | None
    headers: str | None
    order_key: str | None
    failure: str | None
    not_before: datetime | None
    published_at: int


class FreshDeliveries(NamedTuple):
    """The deliveries of some events to one target, in order. Those that could not be rendered have a `failure`."""

    rule: str
    target: str
    rows: list[DeliveryRow]


class FreshlyRouted(NamedTuple):
    """The deliveries of some events by target.

    `has_others` is True if any event also matches budgeted or deferred rules.
    """

    deliveries: list[FreshDeliveries]
    has_others: bool


def route_in_memory(
    program: RouteProgram, fresh: Sequence[FreshEvent], arrived_at: datetime, max_bytes: int, later: Collection[str]
) -> FreshlyRouted:
    """Match and transform events of a bus that arrived together, except for rules that are routed `later`.

    The ids, payloads and headers of deliveries are the same as from `route_slice`; order keys are missing.
    """
    events = _events(fresh, arrived_at, max_bytes)
    matched, _ = match_rows(program, events)
    if not len(matched.events):  # the next step takes longer than matching one event
        return FreshlyRouted([], False)
    _add_columns(events, fresh, arrived_at)
    deferred = program.numbers_of(later)
    apart = program.budgeted | deferred
    has_others = any(len(matched.rows_of(rule)) for rule in apart.values())
    matched = matched.without(deferred.values())
    found: list[FreshDeliveries] = []
    origin = SliceOrigin(program.bus, "", "")
    for numbers, targets in deliveries_of(matched, program.rule_of_route):
        made = Deliveries(numbers, targets, program.ids_of("").compute(*events.names, numbers, targets))
        rows: list[DeliveryRow] = []
        for payloads in program.renderers.render(Events(events.texts, events.arrived_at), made):
            span = slice(payloads.first, payloads.last)
            part = Deliveries(numbers[span], targets[span], made.ids[span])
            rows += _rows(program, events, part, payloads, origin, fresh, arrived_at)
        found += _group_by_target(program, targets.tolist(), rows)
    return FreshlyRouted(found, has_others)


def _group_by_target(program: RouteProgram, targets: list[int], rows: list[DeliveryRow]) -> Iterator[FreshDeliveries]:
    for target, of_target in groupby(zip(targets, rows, strict=True), key=itemgetter(0)):
        route = program.routes[target]
        yield FreshDeliveries(route.rule.name, route.target.name, [row for _, row in of_target])


def _rows(
    program: RouteProgram,
    events: SliceEvents,
    part: Deliveries,
    payloads: Payloads,
    origin: SliceOrigin,
    fresh: Sequence[FreshEvent],
    arrived_at: datetime,
) -> Iterator[DeliveryRow]:
    ids = part.ids.tobytes()
    routes = [program.routes[target] for target in part.targets.tolist()]
    outputs = _outputs(program, events, part, payloads, origin, routes)
    for index, (number, (payload, content_type, headers, failure, not_before)) in enumerate(
        zip(part.events.tolist(), outputs, strict=True)
    ):
        yield DeliveryRow(
            ids[16 * index : 16 * index + 16], arrived_at, payload, content_type, headers, None, failure, not_before,
            fresh[number].published_at,
        )  # fmt: skip


_OUTPUTS: Final = ("payload", "content_type", "headers", "failure", "not_before")


def _outputs(
    program: RouteProgram,
    events: SliceEvents,
    part: Deliveries,
    payloads: Payloads,
    origin: SliceOrigin,
    routes: Sequence[Route],
) -> Iterator[tuple[Any, ...]]:
    """Yield the columns `_OUTPUTS` of each delivery."""
    if payloads.status.any() or events.traces or any(route.waiting is not None for route in routes):
        columns = outputs_of(program, events, part, payloads, origin)
        yield from zip(*(columns[name].to_pylist() for name in _OUTPUTS), strict=True)
        return
    for payload, route in zip(payloads.payload.to_pylist(), routes, strict=True):
        yield payload, route.program.content_type, None, None, None


def _events(fresh: Sequence[FreshEvent], arrived_at: datetime, max_bytes: int) -> SliceEvents:
    """Return the events in the form of a slice; their table is built only on demand."""
    rows = np.arange(len(fresh), dtype=np.int32)
    events = SliceEvents(lambda: _table(fresh, arrived_at), rows, max_bytes)
    events.texts = _texts([each.body for each in fresh])
    return events


def _add_columns(events: SliceEvents, fresh: Sequence[FreshEvent], arrived_at: datetime) -> None:
    """Add the columns that deliveries copy from their events."""
    sources = [each.source.encode() for each in fresh]
    events.names = _texts(sources), _texts([each.event_id.encode() for each in fresh])
    arrived = (arrived_at - _EPOCH) // timedelta(microseconds=1)
    events.arrived_at = np.array([arrived] * len(fresh), np.int64)
    if not any(has_traceparent(each.body) for each in fresh):
        events.traces = {}


def _texts(parts: list[bytes]) -> Texts:
    """Return byte strings with `PADDING` zeros after the last one, because compiled code may read beyond its end."""
    ends = np.array([*accumulate(map(len, parts), initial=0)], np.int64)
    return Texts(np.frombuffer(b"".join([*parts, bytes(PADDING)]), np.uint8), ends[:-1], ends[1:])


def _table(fresh: Sequence[FreshEvent], arrived_at: datetime) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "topic": [each.partition.topic for each in fresh],
        "broker": [each.partition.broker for each in fresh],
        "partition_id": [each.partition.partition_id for each in fresh],
        "offset": [each.offset for each in fresh],
        "published_at": [each.published_at for each in fresh],
        "arrived_at": [arrived_at] * len(fresh),
        "status": ["valid"] * len(fresh),
        "event_id": [each.event_id for each in fresh],
        "source": [each.source for each in fresh],
        "body": [each.body for each in fresh],
    }
    return pa.table({name: pa.array(values, BUFFER.field(name).type) for name, values in columns.items()})

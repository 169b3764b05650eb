"""Renders the outputs of targets for some events so that they can be inspected, without writing anything.

This module must not import the ledger or Spark, because Spark workers import it and must start fast.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.event.ids import delivery_id
from eventbridge.model.backtested import EventSample, Output
from eventbridge.routing.block import SliceOrigin, outputs_of
from eventbridge.routing.events import SliceEvents
from eventbridge.routing.program import RouteProgram
from eventbridge.transform.kernel.render import Deliveries, Events, Payloads

#: The maximum number of bytes of an event or payload in a sample.
SAMPLE_BYTES: Final = 4_000

#: The columns of DELIVERY that hold the output for a target.
COLUMNS: Final = ("payload", "content_type", "headers", "failure")


def outputs(program: RouteProgram, events: SliceEvents, route: int, numbers: npt.NDArray[np.int64]) -> pa.Table:
    """Return a target's outputs for events, in their order, as a table with COLUMNS."""
    each = program.routes[route]
    ids = [
        delivery_id(program.bus, event.source, event.id, each.rule.name, each.target.name)
        for event in map(events.parse, numbers.tolist())
    ]
    raw = np.frombuffer(b"".join(ids), np.uint8).reshape(len(ids), 16)
    return _render(program, events, Deliveries(numbers, np.full(len(numbers), route, np.int64), raw))


def every_output(program: RouteProgram, events: SliceEvents, route: int, numbers: npt.NDArray[np.int64]) -> pa.Table:
    """Return the same as `outputs`, but faster for many events; the events' table must have `source` and `event_id`."""
    ids = program.ids_of("").compute(*events.names, numbers, np.full(len(numbers), route, np.int64))
    return _render(program, events, Deliveries(numbers, np.full(len(numbers), route, np.int64), ids))


def failures(
    program: RouteProgram, events: SliceEvents, route: int, numbers: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the events without an output for a target, in ascending order, and the reason for each.

    Compiled code renders all events without keeping the outputs. The renderer then renders those that compiled code
    handed back. If deliveries of the target may wait, their waiting times are computed as well, because an invalid time
    is a failure.
    """
    deliveries = Deliveries(numbers, np.full(len(numbers), route, np.int64), np.zeros((len(numbers), 16), np.uint8))
    found: list[tuple[npt.NDArray[np.int64], list[str]]] = []
    for payloads in program.renderers.render(Events(events.texts, events.arrived_at), deliveries):
        taken = np.arange(payloads.first, payloads.last)
        if program.routes[route].waiting is None:
            taken = taken[payloads.status != 0]
        if not len(taken):
            continue
        part = Deliveries(numbers[taken], deliveries.targets[taken], deliveries.ids[taken])
        indices = taken - payloads.first
        chosen = Payloads(0, len(indices), payloads.payload.take(pa.array(indices)), payloads.status[indices])
        why = outputs_of(program, events, part, chosen, SliceOrigin(program.bus, "", ""))["failure"]
        failed = why.is_valid().to_numpy(zero_copy_only=False)
        found.append((part.events[failed], why.drop_null().to_pylist()))
    if not found:
        return np.zeros(0, np.int64), []
    return np.concatenate([each for each, _ in found]), [text for _, texts in found for text in texts]


def differ(a: pa.Table, b: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which rows differ between two tables of outputs."""
    found = np.zeros(a.num_rows, np.bool_)
    for name in COLUMNS:
        one, other = a[name], b[name]
        same = pc.fill_null(pc.equal(one, other), False).combine_chunks().to_numpy(zero_copy_only=False)
        neither = pc.and_(pc.is_null(one), pc.is_null(other)).combine_chunks().to_numpy(zero_copy_only=False)
        found |= ~(same | neither)
    return found


def event_sample(events: SliceEvents, file: str, number: int) -> EventSample:
    """Return an event of a slice as a sample."""
    event = events.parse(number)
    row, arrived_at = int(events.rows[number]), int(events.arrived_at[number])
    return sample_of(file, row, event.id, event.source, arrived_at, events.table["body"][number].as_py())


def sample_of(file: str, row: int, event_id: str, source: str, arrived_at: int, body: bytes) -> EventSample:
    """Return an event as a sample, truncated to SAMPLE_BYTES."""
    text = body[:SAMPLE_BYTES].decode("utf-8", "ignore")
    return EventSample(file, row, event_id, source, arrived_at, text, cut=len(body) > SAMPLE_BYTES)


def output_of(row: Mapping[str, Any]) -> Output:
    """Return a row with COLUMNS as an output for display, truncated to SAMPLE_BYTES."""
    payload: bytes | None = row["payload"]
    if payload is None:
        return Output(failure=row["failure"])
    rest = {"content_type": row["content_type"], "headers": row["headers"], "cut": len(payload) > SAMPLE_BYTES}
    try:
        payload.decode()
    except UnicodeDecodeError:
        return Output(base64.b64encode(payload[:SAMPLE_BYTES]).decode(), is_base64=True, **rest)
    return Output(payload[:SAMPLE_BYTES].decode("utf-8", "ignore"), **rest)


def _render(program: RouteProgram, events: SliceEvents, deliveries: Deliveries) -> pa.Table:
    tables = []
    for payloads in program.renderers.render(Events(events.texts, events.arrived_at), deliveries):
        span = slice(payloads.first, payloads.last)
        part = Deliveries(deliveries.events[span], deliveries.targets[span], deliveries.ids[span])
        columns = outputs_of(program, events, part, payloads, SliceOrigin(program.bus, "", ""))
        plain = {name: columns[name].cast(pa.binary() if name == "payload" else pa.string()) for name in COLUMNS}
        tables.append(pa.table(plain))
    return pa.concat_tables(tables)

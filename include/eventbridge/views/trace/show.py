"""Returns one event with its payload, from the archive or, if no batch has landed it, from its bus."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from eventbridge.errors import BusError
from eventbridge.event.json_text import bytes_as_text
from eventbridge.model.partition import Partition
from eventbridge.model.why import EventPosition, Why
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.trace.explain import body_or_error, why


@dataclass(frozen=True)
class ShownEvent:
    """One message with its payload.

    `event` is the payload as text, or None if it is past its retention or cannot be read; `error` says why it cannot.
    `status` is None if the message has not landed, or its archive was removed. `others` is the number of other messages
    with the same id.
    """

    event_id: str
    position: EventPosition
    landed: bool
    status: str | None
    source: str | None
    type: str | None
    published_at: datetime | None
    event: str | None
    others: int
    error: str | None


def shown_event(runtime: Runtime, event_id: str, bus: str | None = None) -> ShownEvent:
    """Return the first message with an id. Raises the same errors as `why` if there is none."""
    found = why(runtime, event_id, bus=bus, max_unmatched=0)
    positions = [*found.not_landed, *(each.position for each in found.before_start)]
    others = len(found.events) + len(positions) - 1
    if not found.events:
        return _read_from_bus(runtime, found, positions[0], others)
    first = found.events[0]
    body, error = body_or_error(runtime, first)
    facts = (first.status, first.source, first.type, first.published_at)
    return ShownEvent(found.event_id, first.position, True, *facts, body, others, error)


def _read_from_bus(runtime: Runtime, found: Why, position: EventPosition, others: int) -> ShownEvent:
    partition = Partition(position.topic, position.broker, position.partition_id)
    body, problem = None, None
    try:
        with closing(runtime.open_source(runtime.rule_set().buses[position.bus])) as source:
            for block in source.read(partition, position.offset, position.offset + 1):
                body = bytes_as_text(block["body"][0].as_py() or b"")
    except BusError as error:
        problem = str(error)
    return ShownEvent(found.event_id, position, False, None, None, None, None, body, others, problem)

"""Opens a bus's source with the opener for its type. Stages, the watcher and commands call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from eventbridge.clients.seen_connections import SeenConnections
from eventbridge.config.connection import Connection
from eventbridge.config.settings import Settings
from eventbridge.errors import UserError
from eventbridge.rules import Bus, Source
from eventbridge.rules.types import SOURCE_TYPES
from eventbridge.sources.plug_in import open_plug_in
from eventbridge.sources.protocol import LogSource, Publisher, QueueSource

AnySource = TypeVar("AnySource", bound=Source, covariant=True)


@dataclass(frozen=True)
class SourceSetup(Generic[AnySource]):
    """The source of a bus and whatever else its opener needs.

    `connections` returns a connection by its name, and `clock` returns the current time (aware).
    """

    bus: str
    source: AnySource
    settings: Settings
    connections: Callable[[str], Connection]
    clock: Callable[[], datetime]

    def error(self, problem: str, remedy: str) -> UserError:
        """Return the error to raise for a source that the rule file makes unusable."""
        return UserError(f"The source of the bus {self.bus!r} {problem}. {remedy}.")


def open_source(
    bus: Bus, settings: Settings, connections: Callable[[str], Connection], clock: Callable[[], datetime]
) -> LogSource | QueueSource:
    """Open a bus for reading. Raises BusError if it cannot be reached.

    Raises UserError if the rule file makes the source unusable (ConnectionUnusable if its connection does).
    """
    opener = SOURCE_TYPES.load_opener(bus.source.type, bus.source)
    plug_in = SOURCE_TYPES.plug_in(bus.source.type)
    seen = SeenConnections(connections)
    setup = SourceSetup(bus.name, bus.source, settings, connections if plug_in is None else seen, clock)
    found: LogSource | QueueSource
    if plug_in is not None:
        found = open_plug_in(plug_in, partial(opener, setup), f"{bus.source.type} {bus.name}", clock, seen.veil)
    else:
        found = opener(setup)
    return found


def open_log(
    bus: Bus, settings: Settings, connections: Callable[[str], Connection], clock: Callable[[], datetime]
) -> LogSource:
    """Open a bus whose messages keep their offsets. Raises UserError if the bus is a queue."""
    source = open_source(bus, settings, connections, clock)
    if source.kind == "log":
        return source
    source.close()
    raise UserError(
        f"The bus {bus.name!r} has type {bus.source.type}, which is a queue, so it cannot be read by offset. "
        "Name a bus that is a log."
    )


def open_queue(
    bus: Bus, topic: str, settings: Settings, connections: Callable[[str], Connection], clock: Callable[[], datetime]
) -> QueueSource:
    """Open one topic of a bus as a queue. Raises UserError if the bus is a log."""
    one = bus.model_copy(update={"source": bus.source.model_copy(update={"topics": (topic,)})})
    source = open_source(one, settings, connections, clock)
    if source.kind == "queue":
        return source
    source.close()
    raise UserError(
        f"The bus {bus.name!r} has type {bus.source.type}, which is a log, not a queue. Name a bus that is a queue."
    )


def open_publisher(
    bus: Bus, settings: Settings, connections: Callable[[str], Connection], clock: Callable[[], datetime]
) -> Publisher:
    """Open a bus for publishing. Raises UserError if EventBridge can only read from it."""
    source = open_source(bus, settings, connections, clock)
    if isinstance(source, Publisher):
        return source
    source.close()
    raise UserError(
        f"The bus {bus.name!r} has type {bus.source.type}, which EventBridge only reads. "
        "Publish with the broker's own tools."
    )

"""Searches buses for messages with an id that no batch has landed yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from eventbridge.errors import EventBridgeError
from eventbridge.event.claimed_id import claimed_id
from eventbridge.event.json_document import write_document
from eventbridge.model.partition import Partition
from eventbridge.model.why import BeforeStart, EventPlace, RunnerStart
from eventbridge.rules import Bus
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import LogSource

#: The newest messages of a partition that are read: one search does not read a backlog of days.
_MOST = 20_000


def on_buses(runtime: Runtime, event_id: str, buses: Iterable[Bus], notes: list[str]) -> Iterator[EventPlace]:
    """Yield the places of messages with an id that no group has committed; adds to `notes` what was not searched."""
    for bus in buses:
        try:
            with closing(runtime.open_source(bus)) as source:
                yield from _on_bus(runtime, event_id, bus, source, notes)
        except EventBridgeError as error:
            notes.append(f"bus {bus.name} was not searched: {error}")


def before_starts(runtime: Runtime, event_id: str, buses: Iterable[Bus], notes: list[str]) -> Iterator[BeforeStart]:
    """Yield messages with an id before the start of every runner of their bus; adds to `notes` as `on_buses` does."""
    for bus in buses:
        try:
            starts = runtime.ledger.first_offsets(bus.name)
            with closing(runtime.open_source(bus)) as source:
                for partition, runners in starts.items():
                    end = min(runners.values())
                    begins = tuple(RunnerStart(name, offset) for name, offset in sorted(runners.items()))
                    for place in _in_partition(
                        event_id, bus, source, partition, source.earliest(partition), end, notes
                    ):
                        yield BeforeStart(place, begins)
        except EventBridgeError as error:
            notes.append(f"bus {bus.name} was not searched: {error}")


def _on_bus(runtime: Runtime, event_id: str, bus: Bus, source: LogSource, notes: list[str]) -> Iterator[EventPlace]:
    committed: dict[Partition, int] = {}
    for each in runtime.ledger.consumer_offsets():
        if each.bus == bus.name:
            committed[each.partition] = min(each.offset, committed.get(each.partition, each.offset))
    for partition, end in source.ends().items():
        first = max(committed.get(partition, 0), source.earliest(partition))
        yield from _in_partition(event_id, bus, source, partition, first, end, notes)


def _in_partition(
    event_id: str, bus: Bus, source: LogSource, partition: Partition, first: int, end: int, notes: list[str]
) -> Iterator[EventPlace]:
    """Yield the places of messages with an id among the newest ones in a range of a partition."""
    written = write_document(event_id).encode("utf-8", "surrogatepass")
    start = max(first, end - _MOST)
    if first < start:
        notes.append(
            f"bus {bus.name}, {'/'.join(str(part) for part in partition if part != '')}: {start - first:,} messages "
            f"before offset {start}, which no batch has landed, were not searched"
        )
    for block in source.read(partition, start, end) if start < end else ():
        for offset, body in zip(block["offset"].to_pylist(), block["body"].to_pylist(), strict=True):
            # most bodies can be excluded by their bytes, except those with escapes
            if body and (written in body or b"\\" in body) and claimed_id(body) == event_id:
                yield EventPlace(bus.name, partition.topic, partition.broker, partition.partition_id, offset)

"""Looks for messages with an id on the buses: those that no batch has landed yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from eventbridge.errors import EventBridgeError
from eventbridge.event.claimed_id import claimed_id
from eventbridge.event.json_document import write_document
from eventbridge.model.partition import Partition
from eventbridge.model.why import BeforeStart, EventPlace, RunnerStart
from eventbridge.rule import Bus
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.runtime.runtime import Runtime

#: Messages of a partition that are looked at, the newest ones: a backlog of days is not read for one question.
_MOST = 20_000


def on_buses(runtime: Runtime, event_id: str, buses: Iterable[Bus], notes: list[str]) -> Iterator[EventPlace]:
    """Yield where messages with an id lie that no group has committed; adds to `notes` what was not looked at."""
    for bus in buses:
        try:
            with closing(runtime.open_source(bus)) as source:
                yield from _on_bus(runtime, event_id, bus, source, notes)
        except EventBridgeError as error:
            notes.append(f"bus {bus.name} was not looked at: {error}")


def before_starts(runtime: Runtime, event_id: str, buses: Iterable[Bus], notes: list[str]) -> Iterator[BeforeStart]:
    """Yield messages with an id that lie where no runner of their bus begins; adds to `notes` as `on_buses` does."""
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
            notes.append(f"bus {bus.name} was not looked at: {error}")


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
    """Yield where messages with an id lie in a range of a partition, of its newest messages."""
    written = write_document(event_id).encode("utf-8", "surrogatepass")
    start = max(first, end - _MOST)
    if first < start:
        notes.append(
            f"bus {bus.name}, {'/'.join(str(part) for part in partition if part != '')}: {start - first:,} messages "
            f"before offset {start}, which no batch has landed, were not looked at"
        )
    for block in source.read(partition, start, end) if start < end else ():
        for offset, body in zip(block["offset"].to_pylist(), block["body"].to_pylist(), strict=True):
            # most bodies are told apart by their bytes; an id that is written with escapes is not
            if body and (written in body or b"\\" in body) and claimed_id(body) == event_id:
                yield EventPlace(bus.name, partition.topic, partition.broker, partition.partition_id, offset)

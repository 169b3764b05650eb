"""The guard against a lost bus: a committed offset counts on the log that it was committed on, and on no other.

A log is known by its identity, or where its bus gives it none by the last message that was taken of it.
Called by listen and buffer, which stop, by status, which says so, and for rules that leave a runner that was stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from eventbridge.errors import OffsetGapError
from eventbridge.model.consumer_offset import ConsumerOffset
from eventbridge.model.last_message import last_message_of
from eventbridge.model.partition import Partition
from eventbridge.rule import Bus
from eventbridge.sources.protocol import InboxLog, LogSource
from eventbridge.stages.runtime.runtime import Runtime


def refuse_other_log(runtime: Runtime, runner: str, bus: Bus, source: LogSource) -> None:
    """Raise OffsetGapError if the bus's log is not, or no longer, the one that the runner's offsets count on.

    Offsets of which that is not known yet count on this log from now on: they lie within it.
    """
    rows = runtime.ledger.consumer_offsets(runner)
    for told in offset_gaps(bus, source, rows).values():
        raise OffsetGapError(told)
    if not all(row.bus_identity for row in rows):
        runtime.ledger.identify_bus(runner, source.identities())


def offset_gaps(bus: Bus, source: LogSource, rows: Sequence[ConsumerOffset]) -> Mapping[Partition, str]:
    """Return why offsets do not count on this log, with the remedy, for those partitions of the bus where it is so.

    A topic that the rule file no longer names is not consumed, and not looked at; nor is a partition of a broker that
    the bus does not name now: it is away, and so is what lies there.
    """
    identities, ends = source.identities(), source.ends()
    asked = [
        row
        for row in rows
        if row.partition.topic in bus.source.topics and not (row.partition.broker and row.partition not in ends)
    ]
    found = {}
    for row in asked:
        identity, end = identities.get(row.partition.topic, ""), ends.get(row.partition, 0)
        if not _is_valid_on(row, identity, end):
            found[row.partition] = _error_message(row, source, identity, end)
    nameless = [row for row in asked if row.partition not in found and row.partition.topic not in identities]
    return found | {row.partition: _message_by_last_message(row, source) for row in _of_other_logs(source, nameless)}


def standing_offset(row: ConsumerOffset, bus: Bus, source: LogSource) -> int:
    """Return where a rule stands that comes from another runner: at its offset, if that counts on this log.

    If it does not, the rule has seen nothing of this log: start_at decides, but no event is passed over for `latest`.
    """
    identity = source.identities().get(row.partition.topic, "")
    if _is_valid_on(row, identity, source.end(row.partition)) and (identity or _holds_last(source, row) is not False):
        return row.offset
    return (
        source.earliest(row.partition) if bus.source.start_at == "latest" else start_offset(bus, source, row.partition)
    )


def start_offset(bus: Bus, source: LogSource, partition: Partition) -> int:
    """Return where `start_at` says that a new group begins in a partition."""
    match bus.source.start_at:
        case "earliest":
            return source.earliest(partition)
        case "latest":
            return source.end(partition)
        case at:
            return source.offset_at(partition, at)


def _is_valid_on(row: ConsumerOffset, identity: str, end: int) -> bool:
    same = not row.bus_identity or not identity or row.bus_identity == identity
    return same and row.offset <= end


def _of_other_logs(source: LogSource, rows: Iterable[ConsumerOffset]) -> list[ConsumerOffset]:
    """Return those whose topic has another message, on a broker, where the last one lay that was taken there.

    One partition that says so speaks for all of its topic on its broker: they are made together.
    """
    known: dict[tuple[str, str], bool | None] = {}
    found = []
    for row in rows:
        place = row.partition.topic, row.partition.broker
        if known.get(place) is None:
            known[place] = _holds_last(source, row)
        if known[place] is False:
            found.append(row)
    return found


def _holds_last(source: LogSource, row: ConsumerOffset) -> bool | None:
    """Return whether a log still has the last message that was taken; None: it dropped it, or nobody noted which."""
    last = last_message_of(row.message_id or row.bus_identity)
    if last is None or isinstance(source, InboxLog):  # what an inbox holds the ledger itself knows
        return None
    blocks = list(source.read(row.partition, last.offset, last.offset + 1))
    return blocks[0]["published_at"].cast(pa.int64())[0].as_py() == last.time if blocks else None


_REMEDY = (
    "Put the right log back in its place, and keep this one: what was published since lies in it. Or, to go on "
    "with what is there now, give the runner's rules a runner of a new name: it starts at the bus's start_at, "
    "where that is latest at the earliest event."
)


def _error_message(row: ConsumerOffset, source: LogSource, identity: str, end: int) -> str:
    if row.bus_identity and identity and row.bus_identity != identity:
        return (
            f"The runner {row.group!r} stands at offset {row.offset} of {_name(row)} of the bus {row.bus!r} whose "
            f"identity is {row.bus_identity}, and {source.uri} has the identity {identity}: the bus was deleted or "
            f"replaced, and what was published below that offset would be passed over. {_REMEDY}"
        )
    return (
        f"The runner {row.group!r} stands at offset {row.offset} of {_name(row)}, which ends at {end}: the log of the "
        f"bus {row.bus!r}, {source.uri}, was truncated or replaced. {_REMEDY}"
    )


def _message_by_last_message(row: ConsumerOffset, source: LogSource) -> str:
    return (
        f"The runner {row.group!r} stands at offset {row.offset} of {_name(row)} of the bus {row.bus!r}, and "
        f"{source.uri} has other messages below that offset than it took: the topic was deleted and made again, and "
        f"what was published there since would be passed over. {_REMEDY}"
    )


def _name(row: ConsumerOffset) -> str:
    return "/".join(str(part) for part in row.partition if part != "")

"""Detects that a ledger, a store or a bus was lost or replaced, so that an empty one is not mistaken for a first start.

A committed offset is valid only for the log on which it was committed. A log is recognised by its identity or, if it
has none, by the last message that was taken from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import PurePosixPath

import pyarrow as pa

from eventbridge.errors import LedgerLostError, NotFoundError, OffsetGapError, StoreError, StoreFileMissing
from eventbridge.event.ids import new_batch_id
from eventbridge.model.partition import ConsumerOffset, Partition, last_message_of
from eventbridge.rules import Bus
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import InboxLog, LogSource
from eventbridge.store import layout

#: If the ledger planned a batch within this many seconds, it has not just been restored, so manifests are not listed.
_TRUSTED_SECONDS = 600.0
_REMEDY = (
    "Put the right log back in its place, and keep this one: it has the messages published since. Or, to continue "
    "with this log, give the runner's rules a runner with a new name. It starts at the bus's start_at, or at the "
    "earliest event if start_at is latest."
)


def claim_runner(runtime: Runtime, runner: str) -> None:
    """Record in the store that this ledger has a runner's state.

    Raises LedgerLostError if the store names another ledger, or if the store was lost. If two ledgers start with the
    same store, only one of them can create the record.
    """
    path = layout.runner(runner)
    content = {"runner": runner, "ledger": runtime.ledger.id, "since": runtime.ledger.now().isoformat()}
    # The offsets are read before the store, because a process claims the runner in the store before it registers
    # offsets. In the other order, the store would seem lost if another process started the runner at the same moment.
    offsets = runtime.ledger.offsets.committed(runner)
    try:
        written = runtime.store.get(path)
    except StoreFileMissing:
        if offsets:
            raise LedgerLostError(
                f"The ledger has offsets of runner {runner!r}, but {runtime.store.uri} has no record of this runner: "
                "the store was deleted or replaced, and with it the archive and the payloads of pending deliveries. "
                "Restore it, or point EVENTBRIDGE_STORE_URI at the store that belongs to this ledger. "
                "To start over on purpose, point EVENTBRIDGE_LEDGER_URL at an empty ledger as well."
            ) from None
        if runtime.store.create(path, json.dumps(content).encode()):
            return
        written = runtime.store.get(path)
    owner = _owner_of(runtime, path, written)
    if owner != runtime.ledger.id:
        raise LedgerLostError(
            f"The state of runner {runner!r} is in the ledger {owner}, and this ledger is {runtime.ledger.id}. "
            + _remedy(runtime)
        )


def ledger_of_runner(runtime: Runtime, runner: str) -> str:
    """Return the id of the ledger that the store names for a runner. Raises StoreError if the record is unreadable."""
    path = layout.runner(runner)
    return _owner_of(runtime, path, runtime.store.get(path))


def _owner_of(runtime: Runtime, path: str, record: bytes) -> str:
    try:
        return str(json.loads(record)["ledger"])
    except (ValueError, KeyError, TypeError):
        raise StoreError(
            f"{path} in {runtime.store.uri} does not say which ledger it belongs to. Restore this file."
        ) from None


def registered_at(runtime: Runtime, runner: str) -> datetime | None:
    """Return when the ledger first had a runner's state, by the ledger's clock, or None if that is not recorded."""
    try:
        return datetime.fromisoformat(json.loads(runtime.store.get(layout.runner(runner)))["since"])
    except (StoreFileMissing, ValueError, KeyError, TypeError):
        return None


def refuse_lost_ledger(runtime: Runtime, *, always: bool = False) -> None:
    """Raise LedgerLostError if the newest manifest in the store belongs to a batch that the ledger does not have.

    Because listing manifests takes time, this is checked only if `always`, or if the ledger has planned no batch in the
    last 10 minutes.
    """
    latest = runtime.ledger.batches.latest()
    now = runtime.ledger.now()
    if not always and latest is not None and (now - latest.planned_at).total_seconds() < _TRUSTED_SECONDS:
        return
    found = runtime.store.list("manifests/", _name_before(latest.planned_at) if latest is not None else "")
    if not found:
        return
    newest = PurePosixPath(found[-1]).stem
    try:
        runtime.ledger.batches.get(newest)
    except NotFoundError:
        raise LedgerLostError(
            f"The store {runtime.store.uri} has the manifest of batch {newest}, which this ledger does not know: "
            f"the ledger is older than the store. {_remedy(runtime)}"
        ) from None


def _name_before(planned_at: datetime) -> str:
    """Return a name that sorts a little before the manifests of batches planned at the given time, so that few are
    listed.

    The name of the newest known batch is unsuitable, because batches that were planned at the same moment are in no
    particular order.
    """
    since = planned_at - timedelta(seconds=_TRUSTED_SECONDS)
    return layout.manifest(since, new_batch_id(since))


def _remedy(runtime: Runtime) -> str:
    return (
        "Point EVENTBRIDGE_LEDGER_URL at the ledger that belongs to this store, or restore its latest copy. "
        "To start over on purpose, which repeats the events that start_at covers, point EVENTBRIDGE_STORE_URI at "
        "an empty store."
    )


def refuse_other_log(runtime: Runtime, runner: str, bus: Bus, source: LogSource) -> None:
    """Raise OffsetGapError if the runner's offsets do not belong to the log that the bus has now.

    If an offset has no recorded log yet, this log is recorded for it.
    """
    rows = runtime.ledger.offsets.find(runner)
    for message in offset_gaps(bus, source, rows).values():
        raise OffsetGapError(message)
    if not all(row.bus_identity for row in rows):
        runtime.ledger.offsets.identify_bus(runner, source.identities())


def offset_gaps(bus: Bus, source: LogSource, rows: Sequence[ConsumerOffset]) -> Mapping[Partition, str]:
    """Return an error message, with the remedy, for each partition whose offset does not belong to this log.

    A topic that the rule file no longer names is neither consumed nor checked. The same is true of a partition whose
    broker the bus does not have at the moment, because its messages cannot be reached.
    """
    identities, ends = source.identities(), source.ends()
    checked = [
        row
        for row in rows
        if row.partition.topic in bus.source.topics and not (row.partition.broker and row.partition not in ends)
    ]
    found = {}
    for row in checked:
        identity, end = identities.get(row.partition.topic, ""), ends.get(row.partition, 0)
        if not _is_valid_on(row, identity, end):
            found[row.partition] = _error_message(row, source, identity, end)
    nameless = [row for row in checked if row.partition not in found and row.partition.topic not in identities]
    return found | {
        row.partition: _message_by_last_message(row, source) for row in _rows_of_other_logs(source, nameless)
    }


def standing_offset(row: ConsumerOffset, bus: Bus, source: LogSource) -> int:
    """Return the offset at which a rule that was moved from another runner continues.

    It is the other runner's offset, if that belongs to this log. Otherwise, the rule has not been matched against any
    event of this log, so `start_at` decides. `latest` then means the earliest event, so that none is skipped.
    """
    identity = source.identities().get(row.partition.topic, "")
    if _is_valid_on(row, identity, source.end(row.partition)) and (identity or _holds_last(source, row) is not False):
        return row.offset
    return (
        source.earliest(row.partition) if bus.source.start_at == "latest" else start_offset(bus, source, row.partition)
    )


def start_offset(bus: Bus, source: LogSource, partition: Partition) -> int:
    """Return the offset at which a new runner begins in a partition, according to the `start_at` of its bus."""
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


def _rows_of_other_logs(source: LogSource, rows: Iterable[ConsumerOffset]) -> list[ConsumerOffset]:
    """Return the rows whose topic has a different message at the offset of the last message that was taken.

    The first partition for which this is known decides for all partitions of its topic on its broker, because these are
    created together.
    """
    known: dict[tuple[str, str], bool | None] = {}
    found = []
    for row in rows:
        broker_topic = row.partition.topic, row.partition.broker
        if known.get(broker_topic) is None:
            known[broker_topic] = _holds_last(source, row)
        if known[broker_topic] is False:
            found.append(row)
    return found


def _holds_last(source: LogSource, row: ConsumerOffset) -> bool | None:
    """Return whether a log still has the last message that was taken from it.

    Returns None if this is unknown, because the log has dropped that message, or because the message is not recorded.
    """
    last = last_message_of(row.message_id or row.bus_identity)
    if last is None or isinstance(source, InboxLog):  # an inbox belongs to the ledger
        return None
    blocks = list(source.read(row.partition, last.offset, last.offset + 1))
    return blocks[0]["published_at"].cast(pa.int64())[0].as_py() == last.time if blocks else None


def _error_message(row: ConsumerOffset, source: LogSource, identity: str, end: int) -> str:
    if row.bus_identity and identity and row.bus_identity != identity:
        return (
            f"The runner {row.group!r} is at offset {row.offset} of {_name(row)} of the bus {row.bus!r} with "
            f"the identity {row.bus_identity}, but {source.uri} has the identity {identity}: the bus was deleted or "
            f"replaced, and messages published below that offset would be skipped. {_REMEDY}"
        )
    return (
        f"The runner {row.group!r} is at offset {row.offset} of {_name(row)}, which ends at {end}: the log of the "
        f"bus {row.bus!r}, {source.uri}, was truncated or replaced. {_REMEDY}"
    )


def _message_by_last_message(row: ConsumerOffset, source: LogSource) -> str:
    return (
        f"The runner {row.group!r} is at offset {row.offset} of {_name(row)} of the bus {row.bus!r}, but "
        f"{source.uri} has other messages below that offset than the runner took: the topic was deleted and recreated, "
        f"and messages published since would be skipped. {_REMEDY}"
    )


def _name(row: ConsumerOffset) -> str:
    return "/".join(str(part) for part in row.partition if part != "")

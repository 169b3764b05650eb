"""Rebuilds the input files of a batch: what it landed from its bus, or what a redrive or a replay took.

Called by the repair of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime

import pyarrow.compute as pc
from msgspec import structs

from eventbridge.dead_letters import redrive_inputs as of_dead_letters
from eventbridge.errors import ReconciliationError, StoreError
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.file_detail import LandedRange
from eventbridge.pipeline.ingest.checking import Checking, Limits, valid_identities, write_file
from eventbridge.replay import batch_file as of_events
from eventbridge.runtime.log_identity import refuse_other_log
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_table


def begins_batch(batch: Batch, file: BatchFile) -> bool:
    """Return whether a file is an input of its batch."""
    landed = isinstance(file.detail, LandedRange)
    return landed or of_dead_letters.is_of_dead_letters(batch, file) or of_events.is_of_events(batch, file)


def rebuild_inputs(runtime: Runtime, batch: Batch, files: Sequence[BatchFile]) -> list[str]:
    """Write files again under other names and return their paths; raises ReconciliationError if that is impossible."""
    landed = _all_landed_again(runtime, batch, [file for file in files if isinstance(file.detail, LandedRange)])
    return [landed[file.key] if file.key in landed else _taken_again(runtime, batch, file) for file in files]


def _taken_again(runtime: Runtime, batch: Batch, file: BatchFile) -> str:
    if batch.kind == "replay":
        return str(of_events.make_again(runtime, batch).path)
    return str(of_dead_letters.make_again(runtime, batch, file).file.path)


def _all_landed_again(runtime: Runtime, batch: Batch, files: Sequence[BatchFile]) -> dict[str, str]:
    """Rebuild files in the order that works: a duplicate is recognized once the file with its event exists.

    The recorded fingerprint of each file shows whether it was rebuilt.
    """
    made: dict[str, str] = {}
    while left := [file for file in files if file.key not in made]:
        before = len(made)
        for file in left:
            if (path := _landed_again(runtime, batch, file, made)) is not None:
                made[file.key] = path
        if len(made) == before:
            raise ReconciliationError(
                f"batch {batch.batch_id}: {left[0].path}, read again from the bus {batch.bus}, is not what it was: "
                "nothing else can make it again. Put it back from a copy of the store; nothing was changed"
            )
    return made


def _landed_again(runtime: Runtime, batch: Batch, file: BatchFile, made: Mapping[str, str]) -> str | None:
    """Read the range of a file from the bus again; it must have the recorded rows in the same order.

    Only the time of landing may differ: it is that of the deliveries of the file or, without any, the time when the
    batch was planned. None: the rows differ, given the files `made` until now (paths by keys).
    """
    had = file.detail
    assert isinstance(had, LandedRange), "it is landed"
    bus = runtime.rules_of(batch).buses[batch.bus]
    limits = Limits(had.read + 1, runtime.settings.event_max_size)  # one more: the range ends it, not their number
    arrived_at = _arrived_at(runtime, batch, file)
    with closing(runtime.open_source(bus)) as source:
        refuse_other_log(runtime, batch.runner, bus, source)
        checking = Checking(source, bus.source.mapping, limits, lambda: arrived_at)
        found = checking.next_file(had.partition, had.start, had.end, _seen(runtime, batch, file, made))
    # a version that did not record the last message recorded everything else
    has = found.detail if had.last is not None else structs.replace(found.detail, last=None)
    if has != had:
        return None
    return write_file(runtime.store, batch.bus, batch.planned_at, batch.batch_id, found.rows)


def _seen(runtime: Runtime, batch: Batch, file: BatchFile, made: Mapping[str, str]) -> set[bytes]:
    """Return the identities of the valid events in the batch's other landed files."""
    seen: set[bytes] = set()
    for other in runtime.ledger.files(batch.batch_id, "buffer"):
        if other.key != file.key and other.path is not None:
            try:
                seen |= valid_identities(runtime.store, made.get(other.key, other.path))
            except StoreError:  # lost as well: if that matters, the recorded fingerprint shows it
                continue
    return seen


def _arrived_at(runtime: Runtime, batch: Batch, file: BatchFile) -> datetime:
    for routed in runtime.ledger.files(batch.batch_id, "delivery"):
        if routed.path is None:
            continue
        try:
            table = read_table(runtime.store, routed.path, columns=["event_file", "arrived_at"])
        except StoreError:
            continue
        times = pc.unique(table.filter(pc.equal(table["event_file"], file.path))["arrived_at"]).to_pylist()
        if times:
            first: datetime = times[0]
            return first
    return batch.planned_at
